"""A test API server and a client of it, in one loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from penstock.engines.kubernetes.api.client import Client, Kind
from penstock.engines.kubernetes.api.credentials import Access, FixedToken
from penstock.testing.kubernetes.server import ApiServer

PODS, NODES = Kind("", "v1", "pods"), Kind("", "v1", "nodes", namespaced=False)
WAIT_S = 20.0


@contextlib.asynccontextmanager
async def served(**options: Any) -> AsyncIterator[tuple[ApiServer, Client]]:
    async with ApiServer(**options) as server, Client(Access(server.url, FixedToken())) as client:
        yield server, client


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), WAIT_S))


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.005)


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}]
    labels = spec.pop("labels", {})
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": containers, **spec}}


def put_pod(server: ApiServer, name: str, **spec: Any) -> dict[str, Any]:
    return server.store.create(server.store.kind("", "pods"), "default", pod(name, **spec))


def drop_pod(server: ApiServer, name: str) -> None:
    server.store.delete(server.store.kind("", "pods"), ("default", name), 0)


def label_pod(server: ApiServer, name: str, **labels: str) -> None:
    def change(one: dict[str, Any]) -> dict[str, Any]:
        one["metadata"]["labels"] = labels
        return one

    server.store.update(server.store.kind("", "pods"), ("default", name), change)
