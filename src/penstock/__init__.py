"""Penstock pools a group's accelerators and lets the right ML job through at the right moment."""

__version__ = "0.1.0"
