"""Prediction: how long a job will run, from the runs of jobs like it. It decides nothing; policies ask it."""
