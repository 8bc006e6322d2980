"""Replays a trace through the real core: the fold, the planner, the lifecycles; only work and machines are modelled."""
