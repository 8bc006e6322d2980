"""Completion of job numbers and of names of nodes, queues, tenants and pools: asked of the server, in silence."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from penstock.cli.place import client_of
from penstock.core.model.errors import PenstockError

if TYPE_CHECKING:
    from penstock.client import Client

JOBS_MAX = 200
TIMEOUT_S = 2.0
"""For each answer: meanwhile the shell takes no key."""
Completions = list[tuple[str, str]]


def _completer(ask: Callable[["Client"], Iterable[tuple[str, str]]]) -> Callable[[str], Completions]:
    """Return a function that completes a word with what the server knows; with nothing where it cannot be asked."""

    def complete(incomplete: str) -> Completions:
        try:
            client = client_of()
            client.timeout_s = TIMEOUT_S
            return [found for found in ask(client) if found[0].startswith(incomplete)]
        except PenstockError:
            return []

    return complete


complete_jobs = _completer(
    lambda client: (
        (str(job.id), f"{job.name}, {job.state}") for job in client.jobs(sort="newest", limit=JOBS_MAX).jobs
    )
)
complete_nodes = _completer(lambda client: ((node.name, node.state) for node in client.nodes()))
complete_queues = _completer(lambda client: ((queue.name, queue.policy) for queue in client.queues()))
complete_pools = _completer(lambda client: ((pool.name, f"{pool.nodes} nodes") for pool in client.pools()))
complete_tenants = _completer(lambda client: ((name, "") for name in client.me().submits))
