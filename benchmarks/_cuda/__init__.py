"""Parts of the CUDA benchmark: one kernel, one network, each in a process of its own."""
