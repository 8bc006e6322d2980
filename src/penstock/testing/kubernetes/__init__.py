"""A Kubernetes API server in memory, that answers as the real one does: for tests of ours and of users' controllers."""
