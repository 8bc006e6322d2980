"""Messages between programs: requests, answers, orders to agents, their reports. Values only; no decisions."""
