"""TGraph as it was published, its ablations, and its attention over schedules of one program."""
