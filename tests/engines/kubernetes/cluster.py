"""A server with the Kubernetes engine on a test API server, and kubelets that run nothing but say so."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

from penstock.bootstrap import RealClock
from penstock.control.controller import Controller
from penstock.control.pods import PodJobs
from penstock.control.service import ControlService
from penstock.core.model.resources import Resources
from penstock.engines.kubernetes.api.client import Client
from penstock.engines.kubernetes.api.credentials import Access, FixedToken
from penstock.engines.kubernetes.engine import KubernetesEngine
from penstock.engines.kubernetes.onnode import replica_of
from penstock.engines.kubernetes.operator.queuemap import Where
from penstock.engines.kubernetes.shadow.engine import ShadowEngine
from penstock.server.backend import deliver_on
from penstock.sim.apiserver.controllers import let_run
from penstock.sim.apiserver.kinds import bind
from penstock.sim.apiserver.store import merged
from penstock.sim.world.disk import SimDisk
from penstock.testing.builders import config
from penstock.testing.kubernetes.server import ApiServer
from tests.engines.kubernetes.helpers import until

QUEUES = Where("penstock", "penstock-queues")
"""The ConfigMap with queues that the server follows."""
NODE = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "4", "pods": "110"}


class Later:
    """An engine that is made after its service: orders go to it from then on."""

    def __init__(self) -> None:
        self.engine: Any = None

    def send(self, orders: Any) -> None:
        if self.engine is not None:
            self.engine.send(orders)


class Serving:
    """A server with the engine, in this process, on an API server that it reaches by `access`."""

    access: Access

    def __init__(self) -> None:
        self.disk = SimDisk(random.Random(0))
        self.controller: Controller | None = None
        self.engine: Any = None
        self.starts = 0

    @property
    def state(self) -> Any:
        return self.controller.state

    def jobs(self) -> list[tuple[str, str]]:
        return sorted((job.spec.name, job.state) for job in self.state.jobs.values())

    def ready(self) -> bool:
        """Return whether the server has taken in all nodes."""
        raise NotImplementedError

    @contextlib.asynccontextmanager
    async def serving(self, *, shadow: bool = False, **settings: Any) -> AsyncIterator[None]:
        """Run a server with its engine; a second time it is a restart on the same log.

        Args:
            shadow: other schedulers decide.
        """
        clock = RealClock()
        self.starts += 1
        self.controller = Controller(self.disk, clock, name=f"s{self.starts}", check_invariants=True, shadow=shadow)
        self.controller.open(None if self.starts > 1 else config(**settings))
        later, faults = Later(), []
        loop = asyncio.get_running_loop()
        service = ControlService(
            self.controller, self.disk, later, clock,
            deliver=deliver_on(loop), deliver_reports=deliver_on(loop), on_fault=faults.append,
        )  # fmt: skip
        async with Client(self.access, read_only=shadow) as client:
            jobs = PodJobs(service)
            made = ShadowEngine(client, jobs) if shadow else KubernetesEngine(client, jobs, queues=QUEUES)
            self.engine = later.engine = made
            service.start()
            task = asyncio.create_task(self.engine.run())
            try:
                await until(lambda: self.ready() or task.done())
                yield
                assert not faults, faults
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                await asyncio.to_thread(service.stop)


class Cluster(Serving):
    """The API server, its kubelets, and how to reach into both."""

    def __init__(self, api: ApiServer) -> None:
        super().__init__()
        self.api, self.store = api, api.store
        self.access = Access(api.url, FixedToken())

    def kind(self, plural: str, group: str = "") -> Any:
        return self.store.kind(group, plural)

    def node(self, name: str, taints: Any = (), **labels: str) -> None:
        status = {"allocatable": NODE, "conditions": [{"type": "Ready", "status": "True"}]}
        product = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
        meta = {"name": name, "labels": {"kubernetes.io/hostname": name, **product, **labels}}
        body = {"metadata": meta, "spec": {"taints": list(taints)}, "status": status}
        self.store.create(self.kind("nodes"), "", body)

    def pod(self, name: str, gpus: int = 1, cpus: str = "1", labels: Any = None, **spec: Any) -> None:
        asked = {"cpu": cpus, **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
        box = {"name": "main", "image": "none", "resources": {"limits": asked}}
        body = {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {"schedulerName": "penstock", "containers": [box], **spec},
        }
        self.store.create(self.kind("pods"), "default", body)

    def gang(self, name: str, size: int, gpus: int = 1, *, first: int = 0, labels: Any = None, **spec: Any) -> None:
        labels = {"penstock.dev/gang": name, "penstock.dev/gang-size": str(size), **(labels or {})}
        for i in range(first, size):
            self.pod(f"{name}-{i}", gpus, labels=labels, **spec)

    def config_map(self, name: str, data: Any, namespace: str = "default") -> None:
        self.store.create(self.kind("configmaps"), namespace, {"metadata": {"name": name}, "data": data})

    def get(self, name: str) -> Any:
        return self.store.all_of("pods").get(("default", name))

    def where(self, *names: str) -> list[str]:
        """Return the node of each pod, '' where it has none or is gone."""
        return [(self.get(name) or {"spec": {}})["spec"].get("nodeName", "") for name in names]

    def says(self, name: str) -> tuple[str, str]:
        """Return reason and message of the pod's PodScheduled condition."""
        conditions = self.get(name)["status"].get("conditions", ())
        found = next((c for c in conditions if c["type"] == "PodScheduled"), {})
        return found.get("reason", ""), found.get("message", "")

    def set(self, name: str, **status: Any) -> None:
        key = ("default", name)
        self.store.update(self.kind("pods"), key, lambda one: merged(one, {"status": status}), part="status")

    def binds(self, name: str, node: str) -> None:
        """Bind a pod as another scheduler does."""
        bind(self.store, self.kind("pods"), "default", {"metadata": {"name": name}, "target": {"name": node}})

    def ends(self, name: str, code: int = 0) -> None:
        ended = {"name": "main", "state": {"terminated": {"exitCode": code}}}
        self.set(name, phase="Failed" if code else "Succeeded", containerStatuses=[ended])

    def delete(self, name: str) -> None:
        self.store.delete(self.kind("pods"), ("default", name), 0)

    async def kubelets(self) -> None:
        """Run what is bound, and let go of what is deleted."""
        while True:
            await asyncio.sleep(0.01)
            for (_, name), pod in list(self.store.all_of("pods").items()):
                if pod["metadata"].get("deletionTimestamp"):
                    self.delete(name)
                elif pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
                    let_run(self.store, ("default", name))

    def ready(self) -> bool:
        names = {name for _, name in self.store.all_of("nodes")}
        return names == {name for name, node in self.state.nodes.items() if node.state == "ready"}

    def sound(self) -> None:
        """Check that no node has more than it holds, and no two replicas of ours a device."""
        held: dict[str, set[int]] = {}
        sums: dict[str, Resources] = {}
        for pod in self.engine.pods.objects.values():
            if pod.spec.node_name and not pod.over and replica_of(pod) is not None:
                cpus = sum(int(c.resources.requests.get("cpu", "0")) for c in pod.spec.containers)
                sums[pod.spec.node_name] = sums.get(pod.spec.node_name, Resources()) + Resources(cpus * 1000)
                for part in pod.metadata.annotations.get("penstock.dev/devices", "").split(","):
                    if part:
                        taken = held.setdefault(pod.spec.node_name, set())
                        assert int(part) not in taken
                        taken.add(int(part))
        assert all(total.cpu_milli <= 8000 for total in sums.values())


@contextlib.asynccontextmanager
async def cluster(*nodes: str, **settings: Any) -> AsyncIterator[Cluster]:
    """A cluster with these nodes, its kubelets, and a server with the engine."""
    async with ApiServer(bookmark_s=1.0) as api:
        found = Cluster(api)
        for name in nodes:
            found.node(name)
        kubelets = asyncio.create_task(found.kubelets())
        try:
            async with found.serving(**settings):
                yield found
        finally:
            kubelets.cancel()
