"""HTTP: connections, authentication, rate limits, fair turns, answers."""
