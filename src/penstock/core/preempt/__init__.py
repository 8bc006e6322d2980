"""Preemption: which running attempts have to leave so that a job can start where it needs to."""
