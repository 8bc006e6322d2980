"""HTTP: the application, connections, who calls, whose turn it is, what is answered."""
