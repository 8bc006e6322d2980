"""The fold of the log: what the cluster is."""
