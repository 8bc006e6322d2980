"""Certificates: the authority of one data folder, and what it has signed. Knows nothing of jobs, sockets or HTTP."""
