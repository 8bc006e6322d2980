"""Jobs passed on to Slurm, one `sbatch` each: Penstock orders, admits and bills, Slurm runs."""
