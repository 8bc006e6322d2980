"""One suite for two servers: the API server for tests, or the cluster that `PENSTOCK_E2E_KUBECONFIG` names.

A case has a namespace of its own, and names of its own for what has none; all that it made is deleted after it.
"""

import asyncio
import contextlib
import functools
import inspect
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from penstock.engines.kubernetes.api.client import PATCHES
from penstock.engines.kubernetes.api.credentials import Access, FixedToken, from_kubeconfig
from penstock.sim.apiserver.controllers import Controllers
from penstock.testing.kubernetes.server import ApiServer

KUBECONFIG = os.environ.get("PENSTOCK_E2E_KUBECONFIG", "")
WAIT_S = 40.0 if KUBECONFIG else 20.0
STEP_S = 0.1 if KUBECONFIG else 0.01
"""How often something is looked at again."""
BEGUN = f"{time.time_ns() // 10**6 % 36**5:x}"
PODS, NODES, PRIORITIES = "/api/v1/pods", "/api/v1/nodes", "/apis/scheduling.k8s.io/v1/priorityclasses"
BUDGETS, JOBS = "/apis/policy/v1/poddisruptionbudgets", "/apis/batch/v1/jobs"
LEASES = "/apis/coordination.k8s.io/v1/leases"
CONFIG_MAPS, EVENTS = "/api/v1/configmaps", "/apis/events.k8s.io/v1/events"
ELASTIC = "/apis/penstock.dev/v1alpha1/elasticjobs"
QUEUES, POOLS = "/apis/penstock.dev/v1alpha1/queues", "/apis/penstock.dev/v1alpha1/computepools"
CLAIMS, VOLUMES = "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes"
STORAGE_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
DEVICE_CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
DEVICE_TEMPLATES = "/apis/resource.k8s.io/v1/resourceclaimtemplates"
DEVICE_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
OF_NO_NAMESPACE = (NODES, PRIORITIES, QUEUES, POOLS, VOLUMES, STORAGE_CLASSES, DEVICE_CLASSES, SLICES)
KINDS = {ELASTIC: "ElasticJob", QUEUES: "Queue", POOLS: "ComputePool"}
Object = dict[str, Any]
Play = Callable[..., Coroutine[Any, Any, None]]


class Answer(NamedTuple):
    status: int
    body: Any
    retry_after: str = ""

    @property
    def said(self) -> tuple[int, str]:
        """Return the status and the reason of a refusal."""
        return self.status, self.body.get("reason", "")


class Line(NamedTuple):
    """One event of a watch."""

    type: str
    object: Any

    @property
    def name(self) -> str:
        return str(self.object["metadata"].get("name", ""))


class Kube:
    """Requests to the server of a case, as they are, and what it answers.

    Args:
        access: where the server is.
        name: the namespace of the case; it begins the names of what has no namespace.
        test: the server for tests; None for a cluster.
    """

    def __init__(self, access: Access, session: aiohttp.ClientSession, name: str, test: ApiServer | None) -> None:
        self.access, self.name, self.test, self._session = access, name, test, session
        self._outside: list[str] = []
        """Paths of what was made outside the namespace."""

    async def call(
        self, method: str, path: str, body: Any = None, content: str = "application/json", **query: str
    ) -> Answer:
        sent = None if body is None else json.dumps(body).encode()
        headers = await self.headers(content if sent is not None else "")
        async with self._session.request(method, path, data=sent, headers=headers, params=query) as answer:
            told = await answer.text()
            body = json.loads(told) if answer.content_type == "application/json" else {"message": told}
            return Answer(answer.status, body, answer.headers.get("Retry-After", ""))

    async def headers(self, content: str = "application/json") -> dict[str, str]:
        token = await self.access.tokens.token()
        found = {"Authorization": f"Bearer {token}"} if token else {}
        return {**found, "Content-Type": content} if content else found

    def path(self, root: str, name: str = "", part: str = "") -> str:
        """Return the path of an object of the case, by the path of all of its kind."""
        if root not in OF_NO_NAMESPACE:
            *before, plural = root.split("/")
            root = "/".join([*before, "namespaces", self.name, plural])
        return "/".join(filter(None, [root, name, part]))

    async def make(self, root: str, name: str, **fields: Any) -> Object:
        """Create an object; `labels` and the like are of its metadata, others stand beside it."""
        meta: Object = {"name": name}
        for one in ("labels", "annotations", "finalizers", "ownerReferences"):
            if one in fields:
                meta[one] = fields.pop(one)
        path = self.path(root)
        if root == path:
            self._outside.append(self.path(root, name))
        return self.right(await self.call("POST", path, {**of_kind(root), "metadata": meta, **fields}))

    async def get(self, root: str, name: str) -> Object | None:
        """Return an object as it is; None where there is none."""
        found = await self.call("GET", self.path(root, name))
        return None if found.status == 404 else self.right(found)

    async def known(self, root: str, name: str) -> Object:
        """Return an object that is there."""
        return self.right(await self.call("GET", self.path(root, name)))

    async def all_of(self, root: str, **query: str) -> list[Object]:
        found: list[Object] = self.right(await self.call("GET", self.path(root), **query))["items"]
        return found

    async def patch(
        self, root: str, name: str, patch: Object, how: str = "merge", part: str = "", **query: str
    ) -> Answer:
        return await self.call("PATCH", self.path(root, name, part), patch, PATCHES[how], **query)  # type: ignore[arg-type]

    async def delete(self, root: str, name: str, **options: Any) -> Answer:
        body = {"kind": "DeleteOptions", "apiVersion": "v1", **options}
        return await self.call("DELETE", self.path(root, name), body)

    async def pod(self, name: str, **spec: Any) -> Object:
        return await self.make(PODS, name, **pod(**spec))

    async def priority(self, value: int = 1000, **fields: Any) -> str:
        """Create a class of priority, and return its name once pods can have it."""
        name = f"{self.name}-{value}"
        await self.make(PRIORITIES, name, value=value, **fields)
        trial = {"metadata": {"name": "trial"}, **pod(priorityClassName=name)}

        async def known() -> bool:
            return (await self.call("POST", self.path(PODS), trial, dryRun="All")).status == 201

        await self.until(known)
        return name

    async def bind(self, name: str, node: str = "n", **meta: Any) -> Answer:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **meta}, "target": target}
        return await self.call("POST", self.path(PODS, name, "binding"), body)

    async def evict(self, name: str, **options: Any) -> Answer:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": self.name}}
        return await self.call("POST", self.path(PODS, name, "eviction"), {**body, "deleteOptions": options})

    async def runs(self, name: str, node: str = "n") -> Object:
        """Bind a pod, and let it run and be ready."""
        bound = await self.get(PODS, name)
        if bound is None or not bound["spec"].get("nodeName"):
            assert (await self.bind(name, node)).status == 201
        return self.right(await self.patch(PODS, name, {"status": RUNNING}, "strategic", "status"))

    @staticmethod
    def right(answer: Answer) -> Object:
        assert answer.status < 400, answer
        found: Object = answer.body
        return found

    @contextlib.asynccontextmanager
    async def watch(self, root: str, **query: str) -> AsyncIterator[AsyncIterator[Line]]:
        """Give the events of a watch."""
        headers = await self.headers("")
        asked = {"watch": "1", "allowWatchBookmarks": "true", **query}
        async with self._session.get(self.path(root), params=asked, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            yield (Line(**json.loads(line)) async for line in answer.content)

    async def until(self, holds: Callable[[], Awaitable[Any]]) -> Any:
        """Return the first answer that is true."""
        while not (found := await holds()):
            await asyncio.sleep(STEP_S)
        return found

    async def gone(self, root: str, name: str) -> None:
        async def is_gone() -> bool:
            return await self.get(root, name) is None

        await self.until(is_gone)

    # The namespace.

    async def open(self) -> None:
        self.right(await self.call("POST", "/api/v1/namespaces", {"metadata": {"name": self.name}}))
        if self.test is None:
            await self.until(lambda: self.get("/api/v1/serviceaccounts", "default"))

    async def close(self) -> None:
        """Delete what the case made; a cluster deletes what is in its namespace."""
        if self.test is not None:
            return
        for one in await self.all_of(PODS):
            name = one["metadata"]["name"]
            await self.patch(PODS, name, {"metadata": {"finalizers": None}})
            await self.delete(PODS, name, gracePeriodSeconds=0)
        for path in self._outside:
            await self.call("DELETE", path)
        await self.call("DELETE", f"/api/v1/namespaces/{self.name}")


def of_kind(root: str) -> Object:
    """Return what an object of ours has to say of its kind; for others it goes without saying."""
    return {"apiVersion": "penstock.dev/v1alpha1", "kind": KINDS[root]} if root in KINDS else {}


RUNNING = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def pod(cpus: str = "1", **spec: Any) -> Object:
    """Return the rest of a pod whose `labels` and the like are given, too."""
    meta = {key: spec.pop(key) for key in ("labels", "annotations", "finalizers") if key in spec}
    box = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpus}}}
    return {**meta, "spec": {"schedulerName": "nobody", "containers": [box], **spec}}


_numbers: Iterator[int] = iter(range(10**6))


@contextlib.asynccontextmanager
async def server() -> AsyncIterator[tuple[Access, ApiServer | None]]:
    """Give the server of a case, with its controllers."""
    if KUBECONFIG:
        yield from_kubeconfig(Path(KUBECONFIG)), None
        return
    async with ApiServer(bookmark_s=1.0) as api:
        controlling = asyncio.create_task(_control(Controllers(api.store)))
        try:
            yield Access(api.url, FixedToken()), api
            assert not controlling.done(), controlling.exception()
        finally:
            controlling.cancel()


async def _control(controllers: Controllers) -> None:
    while True:
        await asyncio.sleep(STEP_S)
        controllers.reconcile()


@contextlib.asynccontextmanager
async def case(kind: type[Kube] = Kube) -> AsyncIterator[Any]:
    """A server, and a namespace on it."""
    async with server() as (access, test):
        connector = aiohttp.TCPConnector(limit=0, ssl=access.security or True)
        async with aiohttp.ClientSession(access.server, connector=connector) as session:
            k = kind(access, session, f"e2e-{BEGUN}-{os.getpid()}-{next(_numbers)}", test)
            await k.open()
            try:
                yield k
            finally:
                await k.close()


def on_cluster(play: Play) -> Callable[..., None]:
    """Make a test of a case: it gets the server, and by name what it is parametrized with."""

    @functools.wraps(play)
    def test(**given: Any) -> None:
        async def work() -> None:
            async with case() as k:
                await play(k, **given)

        asyncio.run(asyncio.wait_for(work(), WAIT_S))

    return without_first(play, test)


def without_first(play: Play, test: Callable[..., None]) -> Callable[..., None]:
    """Return a test that has the parameters of its play, but the first."""
    signature = inspect.signature(play)
    vars(test)["__signature__"] = signature.replace(parameters=list(signature.parameters.values())[1:])
    del vars(test)["__wrapped__"]
    return test
