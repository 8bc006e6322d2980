"""Sums over the log: who held what for how long."""
