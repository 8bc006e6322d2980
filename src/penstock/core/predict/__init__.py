"""Prediction: how long a job will run, from how long jobs like it ran. Nothing here decides; policies ask it."""
