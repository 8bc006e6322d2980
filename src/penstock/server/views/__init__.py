"""What the API shows of the state and the log, to a caller with certain rights."""
