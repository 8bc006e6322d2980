"""Sharing: which low-utilisation jobs may be put together on one device, and which must be parted again."""
