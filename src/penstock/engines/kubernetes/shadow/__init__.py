"""Beside another scheduler, read-only: what waits for it and what it decides goes into the log; nothing is decided."""
