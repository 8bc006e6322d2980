"""Nodes of other machines: `records` is what the server keeps of each, `node` what makes a machine one of them."""
