"""Benchmarks: one file a budget; each prints one JSON object a line."""
