"""The control loop: requests and reports in, commits and orders out. Synchronous; asyncio lives at the edges."""
