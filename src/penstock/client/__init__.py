"""The Python client of the HTTP API."""

from penstock.client.errors import ApiProblem, ServerNotRunning
from penstock.client.http import Client

__all__ = ["ApiProblem", "Client", "ServerNotRunning"]
