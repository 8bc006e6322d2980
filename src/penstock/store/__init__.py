"""Stores of the event log. They keep bytes in order and durable; they know nothing of scheduling."""
