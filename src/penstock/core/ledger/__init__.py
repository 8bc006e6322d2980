"""Sums over the log: usage, prices, bills and accounts."""
