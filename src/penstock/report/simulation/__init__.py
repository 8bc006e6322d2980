"""The page that compares policies on a trace."""
