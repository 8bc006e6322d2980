"""Certificates: the authority of one data folder, and those signed by it. Knows nothing of jobs, sockets or HTTP."""
