"""Crash tests: real processes, killed at the worst moments."""
