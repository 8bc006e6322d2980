"""Elasticity: speed of a job at each size, which jobs get idle devices, which give some back, and device types."""
