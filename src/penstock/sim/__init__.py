"""Simulators around the same core as the live server."""
