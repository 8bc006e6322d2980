"""One planning run: from a snapshot to a plan, chosen among candidates and verified at the commit."""
