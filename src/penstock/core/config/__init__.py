"""Declared text to model and back: job files, cluster files, and their differences."""
