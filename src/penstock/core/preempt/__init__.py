"""Preemption: which running attempts have to leave so that a job can really start where it needs to."""
