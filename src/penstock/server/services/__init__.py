"""Periodic background services: billing, alerts, estimates, nodes on demand, certificates."""
