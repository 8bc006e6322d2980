"""Engines: what really starts and stops processes. An engine decides nothing."""
