"""The fault simulator: the real control loop and the real agent logic in simulated time, on simulated machines.

A seed chooses a small world and a mix of faults; the same seed and commit give the same run, event by event.
"""
