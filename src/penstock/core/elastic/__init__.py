"""Elasticity: how fast a job runs at each size, who gets idle devices, who gives some back, which type suits whom."""
