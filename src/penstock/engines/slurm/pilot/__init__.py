"""Nodes that Slurm lends: allocations asked for by `sbatch`, with an agent of ours on each of their nodes."""
