"""Forecasts for the live cluster by simulation: the effect of a request, and the start times of waiting jobs."""
