"""Choosing: how hard a cycle looks, and which of several candidate plans it takes."""
