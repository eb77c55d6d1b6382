"""What the benchmark of tree search is made of: figures of runs, what a search costs, the page."""
