"""Plans: the vector of graph decisions of a whole network, searched like schedules are."""
