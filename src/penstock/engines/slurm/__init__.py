"""Jobs of a Slurm cluster: what its own commands say of it, as values."""
