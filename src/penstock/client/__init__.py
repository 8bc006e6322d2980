"""The Python client of the HTTP API."""

from penstock.client.http import ApiProblem, Client, ServerNotRunning

__all__ = ["ApiProblem", "Client", "ServerNotRunning"]
