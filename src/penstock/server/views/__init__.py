"""Views of the state and the log, by the rights of the caller."""
