"""A cluster to measure schedulers on: a real one, or the API server for tests; and a Penstock server that runs on it.

All that is made in a cluster is one namespace, nodes and priority classes with names of their own; `Cluster` removes
them at its end.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import msgspec

from bench.kubernetes_api import RUN_ANNOTATION
from penstock.client import Client as ServerClient
from penstock.core.model.errors import PenstockError
from penstock.engines.kubernetes.api.client import Client, Kind
from penstock.engines.kubernetes.api.credentials import from_kubeconfig
from penstock.engines.kubernetes.api.errors import KubernetesError, Missing

T = TypeVar("T")
Body = dict[str, Any]

PODS, NODES, NAMESPACES = Kind("", "v1", "pods"), Kind("", "v1", "nodes", False), Kind("", "v1", "namespaces", False)
JOBS, CLASSES = Kind("batch", "v1", "jobs"), Kind("scheduling.k8s.io", "v1", "priorityclasses", False)
ACCOUNTS = Kind("", "v1", "serviceaccounts")
WRITERS = 24
"""Requests at a time of the benchmark itself."""
NODE_PREFIX = "penstock-bench-"
NOT_READY = "node.kubernetes.io/not-ready"
ALLOCATABLE = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "500Gi", "pods": "110"}
READY_WAIT_S = 180.0
GONE_WAIT_S = 600.0
STOP_WAIT_S = 30.0
SHOWN_EVERY_S = 0.5
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class _Meta(msgspec.Struct, rename="camel", frozen=True):
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] = {}


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str


class _Taint(msgspec.Struct, frozen=True):
    key: str


class _Spec(msgspec.Struct, rename="camel", frozen=True):
    node_name: str = ""
    suspend: bool = False
    taints: list[_Taint] = []


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""
    conditions: list[_Condition] = []


class Seen(msgspec.Struct, frozen=True):
    """What is read of any object."""

    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()
    status: _Status | str = _Status()

    def has(self, condition: str) -> bool:
        return isinstance(self.status, _Status) and any(
            one.type == condition and one.status == "True" for one in self.status.conditions
        )


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: Seen


_EVENT, _SEEN = msgspec.json.Decoder(_Event), msgspec.json.Decoder(Seen)


def say(text: str, *, end: str = "\n") -> None:
    """Show progress."""
    print(f"\r\033[K{text}" if sys.stderr.isatty() else text, end=end if sys.stderr.isatty() else "\n", file=sys.stderr)


def node(name: str) -> Body:
    """Return a node as its kubelet makes it; the annotation is how kwok knows which ones it runs."""
    labels = {"kubernetes.io/hostname": name, "type": "fake"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    meta = {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}}
    return {"metadata": meta, "status": {"allocatable": ALLOCATABLE, "capacity": ALLOCATABLE, "conditions": [ready]}}


def pod(name: str, scheduler: str, labels: dict[str, str] | None = None) -> Body:
    """Return a pod of 1 CPU and 1 GiB."""
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": pod_spec(scheduler, 1)}


def pod_spec(scheduler: str, cpus: int, **more: str) -> Body:
    asked = {"cpu": str(cpus), "memory": "1Gi"}
    box = {"name": "main", "image": "none", "resources": {"requests": asked, "limits": asked}}
    fixed = {"restartPolicy": "Never", "automountServiceAccountToken": False, "enableServiceLinks": False}
    return {"schedulerName": scheduler, "containers": [box], **fixed, **more}


class Cluster:
    """One cluster, through its API server.

    Args:
        make_nodes: make the nodes that are asked for, instead of taking those that are there.
        real: it is not the API server for tests.
    """

    def __init__(self, kubeconfig: Path, *, real: bool, make_nodes: bool) -> None:
        self.kubeconfig, self.real, self._make_nodes = kubeconfig, real, make_nodes
        self.version = "API server for tests"
        self.namespace = f"penstock-bench-{os.getpid()}"
        self.nodes = 0
        self._client = Client(from_kubeconfig(kubeconfig), connections=2 * WRITERS, agent="penstock-bench")
        self._classes: list[str] = []

    async def __aenter__(self) -> "Cluster":
        await self._client.__aenter__()
        if self.real:
            self.version = json.loads(await self._client.request("GET", "/version"))["gitVersion"]
        await self.create(NAMESPACES, {"metadata": {"name": self.namespace}})
        account = ACCOUNTS.path(self.namespace, "default")
        while self.real and not await self._there(account):  # without it no pod can be made in a namespace
            await asyncio.sleep(0.2)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.real:
                await self._clean()
        finally:
            await self._client.__aexit__(kind, error, trace)

    async def _clean(self) -> None:
        say("removing what was made")
        await self._removed(NAMESPACES.path("", self.namespace))
        for name in self._classes:
            await self._removed(CLASSES.path("", name))
        deadline = time.monotonic() + GONE_WAIT_S
        while await self._there(NAMESPACES.path("", self.namespace)):
            if time.monotonic() > deadline:
                say(f"namespace {self.namespace} is still there: its deletion was asked for")
                break
            await asyncio.sleep(1)
        if self._make_nodes:
            await self.each(lambda one: self._removed(NODES.path("", one.metadata.name)), await self._own_nodes(), "")

    async def _there(self, path: str) -> bool:
        with contextlib.suppress(Missing):
            await self._client.request("GET", path)
            return True
        return False

    async def each(self, action: Callable[[T], Awaitable[object]], items: Iterable[T], text: str) -> None:
        """Do something with each item, so many at a time."""
        left, done, shown_s = iter(items), 0, time.monotonic()

        async def work() -> None:
            nonlocal done, shown_s
            for item in left:
                await action(item)
                done += 1
                if text and time.monotonic() - shown_s > SHOWN_EVERY_S:
                    shown_s = time.monotonic()
                    say(f"{text}: {done}", end="")

        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(work())

    async def create(self, kind: Kind, body: Body) -> None:
        path = kind.path(self.namespace if kind.namespaced else "")
        named = {"apiVersion": kind.root.removeprefix("/apis/").removeprefix("/api/"), **body}
        await self._client.request("POST", path, body=named)

    async def create_class(self, name: str, value: int) -> None:
        self._classes.append(name)
        await self.create(CLASSES, {"metadata": {"name": name}, "value": value})

    async def _removed(self, path: str) -> None:
        body = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        with contextlib.suppress(Missing):
            await self._client.request("DELETE", path, body=body)

    async def every(self, kind: Kind, **query: str) -> list[Seen]:
        """Return all objects of a kind, of the namespace where it has one."""
        path, found, following = kind.path(self.namespace if kind.namespaced else ""), [], ""
        while True:
            page = await self._client.page(path, following, **query)
            found += [_SEEN.decode(one) for one in page.items]
            following = page.following
            if not following:
                return found

    async def remove_pods(self) -> None:
        """Remove all pods of the namespace, and see that they are gone."""
        pods = await self.every(PODS)
        while pods:
            await self.each(lambda one: self._removed(PODS.path(self.namespace, one.metadata.name)), pods, "removed")
            pods = await self.every(PODS)

    async def _own_nodes(self) -> list[Seen]:
        return [one for one in await self.every(NODES) if one.metadata.name.startswith(NODE_PREFIX)]

    async def with_nodes(self, count: int) -> None:
        """Have so many nodes that take pods. Raises: SystemExit where the cluster has fewer, and none are made."""
        if self._make_nodes:
            own = {one.metadata.name for one in await self._own_nodes()}
            wanted = {f"{NODE_PREFIX}{i:05}" for i in range(count)}
            text = f"nodes, of {count:,}"
            await self.each(lambda name: self.create(NODES, node(name)), sorted(wanted - own), text)
            await self.each(lambda name: self._removed(NODES.path("", name)), sorted(own - wanted), "surplus nodes")
            await self._take_pods()
        deadline = time.monotonic() + READY_WAIT_S
        while True:
            ready = [one for one in await self.every(NODES) if one.has("Ready") and not one.spec.taints]
            self.nodes = len(ready)
            if self.nodes >= count:
                return
            if not self._make_nodes or time.monotonic() > deadline:
                raise SystemExit(f"{self.nodes:,} nodes take pods, {count:,} are needed: see --nodes and --make-nodes")
            await asyncio.sleep(2)

    async def _take_pods(self) -> None:
        """Take from the made nodes the taint that an API server gives all new ones, where no controller does so."""
        kept = [one for one in await self._own_nodes() if [taint.key for taint in one.spec.taints] == [NOT_READY]]
        bare = {"spec": {"taints": None}}
        await self.each(lambda one: self._client.patch(NODES.path("", one.metadata.name), bare, Seen), kept, "ready")

    async def end_pod(self, name: str) -> None:
        """Let a pod succeed, where no kubelet does."""
        ended = {"name": "main", "ready": False, "restartCount": 0, "image": "none", "imageID": "",
                 "state": {"terminated": {"exitCode": 0}}}  # fmt: skip
        await self.set_status(name, {"phase": "Succeeded", "containerStatuses": [ended]})

    async def set_status(self, name: str, status: Body) -> None:
        """Write what a kubelet says of a pod, unless it is gone, or being stopped."""
        with contextlib.suppress(KubernetesError):
            await self._client.patch(PODS.path(self.namespace, name, "status"), {"status": status}, Seen)

    async def version_now(self, kind: Kind) -> str:
        """Return the version from which a watch sees what happens from now on."""
        page = await self._client.page(kind.path(self.namespace), fieldSelector="metadata.name=none")
        return page.resource_version

    async def follow(self, kind: Kind, version: str, **query: str) -> AsyncIterator[Seen]:
        """Yield what happens to objects of a kind in the namespace, for ever."""
        while True:
            async for line in self._client.watch(kind.path(self.namespace), resourceVersion=version, **query):
                event = _EVENT.decode(line)
                if event.type == "ERROR":
                    raise SystemExit(f"the watch of {kind.plural} broke: {line[:300].decode()}")
                version = event.object.metadata.resource_version
                if event.type in ("ADDED", "MODIFIED"):
                    yield event.object


class Process(NamedTuple):
    """A process and those that it has started."""

    pid: int

    def _all(self) -> list[int]:
        found, at = [self.pid], 0
        while at < len(found):
            for path in Path(f"/proc/{found[at]}/task").glob("*/children"):
                with contextlib.suppress(OSError):
                    found += map(int, path.read_text().split())
            at += 1
        return found

    def cpu_s(self) -> float:
        """Return the CPU time of those that are alive."""
        total = 0
        for pid in self._all():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += int(fields[11]) + int(fields[12])
        return total / TICKS_PER_S

    def rss_mb(self) -> float:
        total = 0
        for pid in self._all():
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                    total += int(line.split()[1]) if line.startswith("VmRSS:") else 0
        return total / 1024


class Penstock:
    """A Penstock server on a cluster; its data folder stays between its starts.

    Args:
        declared: its cluster file, where it needs one.
    """

    def __init__(self, root: Path, kubeconfig: Path, declared: Body | None = None) -> None:
        self._root, self._options = root, {"data": str(root / "data"), "kubernetes": True, "respawn_agents": False}
        self._options["kubeconfigs"] = [str(kubeconfig)]
        if declared is not None:
            (root / "cluster.yaml").write_text(json.dumps(declared))
            self._options["cluster_file"] = str(root / "cluster.yaml")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> Process:
        assert self._process is not None, "it is started first"
        return Process(self._process.pid)

    def start(self) -> None:
        command = [sys.executable, "-P", "-m", "penstock.wire", json.dumps(self._options)]
        with (self._root / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    async def ready(self, nodes: int) -> None:
        """Wait until it has taken in so many nodes."""
        deadline = time.monotonic() + READY_WAIT_S
        while time.monotonic() < deadline:
            self.check()
            with contextlib.suppress(PenstockError, OSError, ValueError):
                found = await asyncio.to_thread(lambda: ServerClient.of(self._root / "data").cluster())
                if found.nodes_ready >= nodes:
                    return
            await asyncio.sleep(0.2)
        raise SystemExit(f"the server has not taken in {nodes:,} nodes after {READY_WAIT_S:.0f} s")

    def check(self) -> None:
        """Raises: SystemExit when it has ended."""
        if self._process is None or self._process.poll() is not None:
            raise SystemExit(f"the server has ended: {(self._root / 'log').read_text()[-2000:]}")

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            say("the server did not end, and is killed")
            self._process.kill()
            self._process.wait()
        self._process = None


@contextlib.contextmanager
def test_api(root: Path) -> Iterator[Path]:
    """Run the API server for tests in a process of its own; yields its kubeconfig."""
    command = [sys.executable, "-P", str(Path(__file__).with_name("kubernetes_api.py"))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        server = process.stdout.readline().strip()
        path = root / "kubeconfig"
        told = {
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": server}}],
            "contexts": [{"name": "test", "context": {"cluster": "test"}}],
        }
        path.write_text(json.dumps(told))
        yield path
    finally:
        process.kill()
        process.wait()


def run_annotations(names: Sequence[str], run_s: float) -> dict[str, str]:
    """Return the annotations by which kubelets know how long a pod runs."""
    return dict.fromkeys((RUN_ANNOTATION, *names), f"{run_s:g}")
