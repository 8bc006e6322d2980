"""Persistent volumes: where pods reach theirs, and how a claim gets a volume once its pod's node is chosen."""
