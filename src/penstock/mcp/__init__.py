"""The MCP server: the verbs of the HTTP API for agents, read-only by default.

A client of the API like the command line: it knows `penstock.client` and the model alone, and each caller acts with
their own token. `serve.py` is where a call comes in; `tools.py` lists the tools; `callers.py` says who calls, what they
may still spend and what waits for their confirmation. The SDK (`mcp`) is imported by `serve.py`, `stdio.py` and
`http.py` alone.
"""
