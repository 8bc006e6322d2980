"""Pods that start together: how they say so in each dialect, and the job that each such gang is."""
