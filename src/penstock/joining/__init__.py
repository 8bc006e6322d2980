"""What makes a machine a node of a server elsewhere; runs there, and never in the server."""
