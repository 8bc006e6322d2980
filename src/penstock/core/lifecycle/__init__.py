"""Lifecycles as transition tables, and the decisions that turn requests and reports into events."""
