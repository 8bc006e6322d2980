"""Slurm's habits, pure: what `#SBATCH` lines and options of its commands mean, and how such a job is said in ours.

Nothing here asks a server, looks at the clock or starts a program: `cli` and `batch` do.
"""
