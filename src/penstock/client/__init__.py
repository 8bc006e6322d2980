"""The Python client: `Client`, and what it gives back. What more than requests needs is imported when it is used.

from penstock.client import Client

with Client.connect() as client:
    job = client.submit(train, "config.yaml", devices=2)
    print(job.result())
"""

from typing import TYPE_CHECKING, Any

from penstock.client.client import Client
from penstock.client.errors import ApiProblem, CallFailed, JobFailed, NotVerified, ServerNotRunning

if TYPE_CHECKING:
    from penstock.client.async_handles import AsyncJob, AsyncJobs
    from penstock.client.asynchronous import AsyncClient
    from penstock.client.executor import PenstockExecutor
    from penstock.client.handles import Job, Jobs

__all__ = [
    "ApiProblem",
    "AsyncClient",
    "AsyncJob",
    "AsyncJobs",
    "CallFailed",
    "Client",
    "Job",
    "JobFailed",
    "Jobs",
    "NotVerified",
    "PenstockExecutor",
    "ServerNotRunning",
]
_LATER = {"Job": "handles", "Jobs": "handles", "PenstockExecutor": "executor"}
_LATER |= {"AsyncClient": "asynchronous", "AsyncJob": "async_handles", "AsyncJobs": "async_handles"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _LATER:
        raise AttributeError(f"module 'penstock.client' has no attribute '{name}'")
    return getattr(import_module(f"penstock.client.{_LATER[name]}"), name)
