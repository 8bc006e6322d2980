"""Replicas in containers: which runtimes of a node work, the words that start one, and the process that keeps it.

Loaded with the first replica that needs it.
"""
