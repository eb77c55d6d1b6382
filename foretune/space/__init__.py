"""The space: sketches, decision variables, candidates."""
