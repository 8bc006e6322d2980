"""One checkpoint of several ranks: what they agree on, hold and write together."""
