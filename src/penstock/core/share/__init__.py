"""Sharing: which low-utilisation jobs may share one device, and which must be separated again."""
