"""Stores of the event log. They keep bytes in order and durable, without knowledge of scheduling."""
