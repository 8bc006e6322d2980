"""The embedded engine: one agent for each (virtual) node of this machine, each in processes of its own.

`brain` is the agent without I/O (the fault simulator runs the same one); `worker` gives it processes and a socket;
`guardian` outlives the worker; `link` is the server's end of the socket.
"""
