"""Batches that change while a program trains: what the scheduler chose, what came of it, and its learning rate."""
