"""Nodes of a Ray cluster: what Penstock may use of them is held by actors, and agents run beside Ray."""
