"""Where checkpoints lie: files written so that a crash leaves the old ones, in a directory or at a URL."""
