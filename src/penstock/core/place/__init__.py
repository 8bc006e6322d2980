"""Placement: which node and which devices a gang gets, or why every node was refused."""
