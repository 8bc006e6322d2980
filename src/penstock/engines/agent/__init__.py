"""The node agent, which every engine uses: `guardian` outlives `worker`, which drives `state_machine` with real I/O.

`state_machine` is the agent without I/O (the fault simulator runs the same one); `worker` gives it processes and a
socket; `server_side` is the server's end of the socket.
"""
