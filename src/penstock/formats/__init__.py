"""What texts of other programs mean: files within bounds, numbers, times, Slurm's own words, models of devices.

Traces (histories) and migrations (configurations) are read with it. It knows neither, and imports the model only.
"""
