"""Hangs and anomalies: when a training makes no step, and which of its ranks is to blame. Pure."""
