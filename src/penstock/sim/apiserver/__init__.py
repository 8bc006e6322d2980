"""A Kubernetes API server in memory that answers as the real one does, and the controllers beside it."""
