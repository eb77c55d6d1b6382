"""Tests of clusters: real Ray clusters of several nodes on this machine, whose nodes are killed."""
