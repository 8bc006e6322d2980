"""A server with the engine on the API server of a case, with nodes and kubelets that run nothing but say so."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar
from unittest import mock

from tests.e2e_kubernetes.kube import (
    ELASTIC,
    EVENTS,
    JOBS,
    NODES,
    PODS,
    RUNNING,
    STEP_S,
    WAIT_S,
    Kube,
    Object,
    Play,
    case,
    without_first,
)
from tests.engines.kubernetes.cluster import NODE, Serving
from tests.engines.kubernetes.scenes import PACE

T = TypeVar("T")
OVER = ("Succeeded", "Failed")
LEAVING_S = 0.3
"""A pod takes this long to leave."""


class Live(Kube, Serving):
    """A case with nodes, kubelets, and a server while one is started."""

    def __init__(self, *args: Any) -> None:
        Kube.__init__(self, *args)
        Serving.__init__(self)
        self._nodes: set[str] = set()
        self.exits: dict[str, int] = {}
        """With which code each pod is to end."""

    def ready(self) -> bool:
        known = self.state.nodes
        return all(name in known and known[name].state == "ready" for name in self._nodes)

    # What people do.

    def node(self, name: str) -> str:
        """Return a node's whole name."""
        return f"{self.name}-{name}"

    async def add_node(self, name: str, **labels: str) -> None:
        labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "e2e": self.name, "disk": name, **labels}
        status = {"allocatable": NODE, "capacity": NODE, "conditions": [{"type": "Ready", "status": "True"}]}
        await self.make(NODES, self.node(name), labels=labels, status=status)
        self.right(await self.patch(NODES, self.node(name), {"spec": {"taints": None}}))  # it is ready
        self._nodes.add(self.node(name))

    async def ask(self, name: str, gpus: int = 1, **fields: Any) -> Object:
        """Create a pod for the server; fields of metadata beside those of its spec."""
        meta = {key: fields.pop(key) for key in ("labels", "annotations") if key in fields}
        return await self.make(PODS, name, **meta, spec={**template(gpus)["spec"], **fields})

    async def gang(self, name: str, size: int, gpus: int = 1, **spec: Any) -> list[str]:
        """Create the pods of a gang, and return their names."""
        labels = {"penstock.dev/gang": name, "penstock.dev/gang-size": str(size)}
        for rank in range(size):
            await self.ask(f"{name}-{rank}", gpus, labels=labels, **spec)
        return [f"{name}-{rank}" for rank in range(size)]

    async def job(self, name: str, size: int, gpus: int = 1, **spec: Any) -> None:
        """Create a suspended Job of the queue `default`."""
        body = {"suspend": True, "parallelism": size, "completions": size, "completionMode": "Indexed"}
        labels = {"penstock.dev/queue": "default"}
        await self.make(JOBS, name, labels=labels, spec={**body, "template": template(gpus, **spec)})

    # What is seen.

    async def where(self, *names: str) -> list[str]:
        """Return the node of each pod, '' where it has none or is gone."""
        found = {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in await self.all_of(PODS)}
        return [found.get(name, "").removeprefix(f"{self.name}-") for name in names]

    async def phases(self, *names: str) -> list[str]:
        found = {one["metadata"]["name"]: one["status"]["phase"] for one in await self.all_of(PODS)}
        return [found.get(name, "") for name in names]

    async def run(self, *names: str) -> list[str]:
        """Wait until these pods run and the server knows it; return their nodes."""

        async def running() -> bool:
            return await self.phases(*names) == ["Running"] * len(names)

        await self.until(running)
        return await self.where(*names)

    async def pods_of(self, owner: str) -> list[Object]:
        """Return the pods of an object that are not over and do not leave, by name."""
        found = [
            one
            for one in await self.all_of(PODS)
            if any(of["name"] == owner for of in one["metadata"].get("ownerReferences") or ())
            and one["status"]["phase"] not in OVER
            and "deletionTimestamp" not in one["metadata"]
        ]
        return sorted(found, key=lambda one: str(one["metadata"]["name"]))

    async def has(self, owner: str, count: int, phase: str = "Running") -> list[Object]:
        """Wait until an object has so many pods, all of them in this phase, and return them."""

        async def there() -> list[list[Object]]:
            found = await self.pods_of(owner)
            return [found] if [one["status"]["phase"] for one in found] == [phase] * count else []

        pods: list[Object] = (await self.until(there))[0]
        return pods

    async def waits(self, *names: str, reason: str = "Unschedulable") -> str:
        """Wait until these pods say that they wait, for this reason; return the text of the last one."""
        text = ""
        for name in names:
            text = await self.until(functools.partial(self._waits, name, reason))
        assert await self.where(*names) == [""] * len(names)
        return text

    async def _waits(self, name: str, reason: str) -> str:
        found = condition(await self.known(PODS, name), "PodScheduled")
        return str(found["message"]) if found.get("reason") == reason else ""

    async def event(self, name: str) -> Object:
        """Wait for an event about an object, and return the last one."""

        async def about() -> list[Object]:
            return [one for one in await self.all_of(EVENTS) if one.get("regarding", {}).get("name") == name
                    and one.get("reportingController") == "penstock.dev/scheduler"]  # fmt: skip

        last: Object = (await self.until(about))[-1]
        return last

    async def status(self, root: str, name: str, **fields: Any) -> Object:
        """Wait until an object's status says this, and return it."""

        async def says() -> Object | None:
            found: Object = (await self.known(root, name)).get("status") or {}
            return found if all(found.get(field) == value for field, value in fields.items()) else None

        found: Object = await self.until(says)
        return found

    # Kubelets.

    @contextlib.asynccontextmanager
    async def with_kubelets(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._kubelets())
        try:
            yield
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _kubelets(self) -> None:
        left_s: dict[str, float] = {}
        while True:
            await asyncio.sleep(STEP_S)
            for pod in await self.all_of(PODS):
                meta, phase = pod["metadata"], pod["status"]["phase"]
                if not pod["spec"].get("nodeName"):
                    continue
                if "deletionTimestamp" in meta:
                    now_s = asyncio.get_running_loop().time()
                    if now_s - left_s.setdefault(meta["uid"], now_s) >= LEAVING_S:
                        await self._let_go(pod)
                elif phase == "Pending":
                    await self._say(pod, RUNNING)
                elif phase == "Running" and meta["name"] in self.exits:
                    await self._say(pod, ended(self.exits.pop(meta["name"])))

    async def _let_go(self, pod: Object) -> None:
        """Say that a pod has ended, and that it may be removed."""
        if pod["status"]["phase"] not in OVER:
            await self._say(pod, ended(143))
        meta = pod["metadata"]
        await self.delete(PODS, meta["name"], gracePeriodSeconds=0, preconditions={"uid": meta["uid"]})

    async def _say(self, pod: Object, status: Object) -> None:
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        await self.patch(PODS, pod["metadata"]["name"], body, "strategic", "status")

    async def close(self) -> None:
        """Leave nothing behind that another case's server would see."""
        for root in (ELASTIC, JOBS) if self.test is None else ():
            for one in await self.all_of(root):
                await self.delete(root, one["metadata"]["name"], propagationPolicy="Background")
                await self.gone(root, one["metadata"]["name"])
        await super().close()
        if self.test is None:
            await self.until(self._empty)

    async def _empty(self) -> bool:
        left = await self.all_of(PODS)
        for one in left:
            await self.patch(PODS, one["metadata"]["name"], {"metadata": {"finalizers": None}})
            await self.delete(PODS, one["metadata"]["name"], gracePeriodSeconds=0)
        return not left


def template(gpus: int = 1, **spec: Any) -> Object:
    """Return the template of pods for the server."""
    asked = {"cpu": "1", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    box = {"name": "main", "image": "none", "resources": {"limits": asked}}
    return {"spec": {"schedulerName": "penstock", "restartPolicy": "Never", "containers": [box], **spec}}


def ended(code: int) -> Object:
    """Return the status of a pod whose container has ended."""
    begun = "2026-11-25T10:00:00Z"
    state = {"terminated": {"exitCode": code, "startedAt": begun, "finishedAt": begun}}
    box = {"name": "main", "image": "none", "imageID": "", "ready": False, "restartCount": 0, "state": state}
    ready = {"type": "Ready", "status": "False"}
    return {"phase": "Failed" if code else "Succeeded", "conditions": [ready], "containerStatuses": [box]}


def condition(one: Object, kind: str) -> Object:
    """Return a condition of an object; an empty one where it has none."""
    found: Object = next((c for c in one.get("status", {}).get("conditions", ()) if c["type"] == kind), {})
    return found


@contextlib.asynccontextmanager
async def standing(*nodes: str) -> AsyncIterator[Live]:
    """A case with these nodes and kubelets, and no server yet."""
    with contextlib.ExitStack() as pace:
        for module, name, value in PACE:
            pace.enter_context(mock.patch.object(module, name, value))
        async with case(Live) as c:
            for name in nodes:
                await c.add_node(name)
            async with c.with_kubelets():
                yield c


def timed(work: Callable[[], Awaitable[T]], wait_s: float = WAIT_S) -> T:
    """Return what some work gives within the time of a case, or a longer one."""

    async def bounded() -> T:
        return await asyncio.wait_for(work(), wait_s)  # type: ignore[arg-type]

    return asyncio.run(bounded())


def live(*nodes: str, **settings: Any) -> Callable[[Play], Callable[..., None]]:
    """Make a test of a case with a server: it gets the case, and by name what it is parametrized with."""

    def made(play: Play) -> Callable[..., None]:
        @functools.wraps(play)
        def test(**given: Any) -> None:
            async def work() -> None:
                async with standing(*nodes) as c, c.serving(**settings):
                    await play(c, **given)

            timed(work)

        return without_first(play, test)

    return made
