"""Parsers of what `nvidia-smi` prints: pure functions from a text to a `Reading`.

The XML (`nvidia-smi -q -x`) is the best source of inventory and health, the CSV (`--query-gpu`) of samples; the others
are read where a site has nothing else. Give them the output as it is, with its last newline: a last line without one
is taken for cut.
"""
