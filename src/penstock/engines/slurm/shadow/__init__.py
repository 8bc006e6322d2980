"""Beside a running Slurm, read-only."""
