"""Devices: what accelerators a node has, and how a program is shown only its own."""
