"""Scenes for scenarios: a cluster in which Jobs, JobSets, Ray clusters, TrainJobs and kubelets do what theirs do."""

import asyncio
import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any
from unittest import mock

from penstock.engines.kubernetes import binding, engine, nominating, offers, saying, sessions, settling, stops
from penstock.engines.kubernetes.api import reflector
from penstock.engines.kubernetes.operator import applying, queuemap, statuses, telling
from penstock.engines.kubernetes.shadow import gangs
from penstock.sim.apiserver.controllers import Controllers, let_run
from penstock.sim.apiserver.store import Kind, Plain, merged
from penstock.testing.kubernetes.server import ApiServer
from tests.engines.kubernetes.cluster import Cluster
from tests.engines.kubernetes.helpers import run, until

PACE: tuple[tuple[Any, str, Any], ...] = (
    (telling, "LOOK_S", 0.03), (applying, "LOOK_S", 0.03), (applying, "TELL_S", 0.05),
    (saying, "LOOK_S", 0.03), (saying, "FIRST_S", 0.03), (saying, "LATER_S", 0.1), (saying, "PAUSE_S", 0.0),
    (nominating, "LOOK_S", 0.01), (nominating, "CLEAR_S", 0.2), (nominating, "REFUSED_S", (0.01, 60.0)),
    (engine, "AGAIN_S", 0.05), (settling, "SETTLE_S", 0.05), (sessions, "AGAIN_S", 0.1),
    (binding, "EVICTION_WAIT_S", 0.05), (stops, "EVICTION_WAIT_S", 0.05), (binding, "WAIT_S", (0.005, 0.05)),
    (statuses, "PAUSE_S", 0.03), (gangs, "AGAIN_S", 0.03), (gangs, "GIVE_UP_S", 0.2), (gangs, "PARTIAL_S", 0.1),
    (queuemap, "AGAIN_S", 0.05), (reflector, "BACKOFF_S", (0.01, 0.05)),
    (offers, "SOON_S", 0.5),
)  # fmt: skip
"""Pauses of the engine that are shorter here."""
PLAIN = Plain()
COSCHEDULING = Kind("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup", True, PLAIN)
VOLCANO = Kind("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", True, PLAIN)
JOB_SETS = Kind("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", True, PLAIN)
RAY_CLUSTERS = Kind("ray.io", "v1", "rayclusters", "RayCluster", True, PLAIN)
RAY_JOBS = Kind("ray.io", "v1", "rayjobs", "RayJob", True, PLAIN)
TRAIN_JOBS = Kind("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob", True, PLAIN)
QUEUE = {"penstock.dev/queue": "default"}
HIGH = "high"
Play = Callable[..., Coroutine[Any, Any, None]]


def box(gpus: int = 1, cpus: str = "1", **amounts: str) -> dict[str, Any]:
    """Return a container that asks for this."""
    asked = {"cpu": cpus, **({"nvidia.com/gpu": str(gpus)} if gpus else {}), **amounts}
    return {"name": "main", "image": "none", "resources": {"limits": asked}}


def template(gpus: int = 1, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """Return the template of pods of a workload."""
    return {
        "metadata": {"labels": labels or {}},
        "spec": {"schedulerName": "penstock", "restartPolicy": "Never", "containers": [box(gpus)], **spec},
    }


class Scene(Cluster):
    """A cluster with controllers."""

    def __init__(self, api: ApiServer) -> None:
        super().__init__(api)
        self.controllers = Controllers(self.store)
        self.slow: set[str] = set()
        """Pods that take their time to leave: a kubelet lets go of them once they are not named here."""

    async def kubelets(self) -> None:
        while True:
            await asyncio.sleep(0.01)
            self.controllers.reconcile()
            for (namespace, _), one in list(self.store.all_of("jobsets").items()):
                self._pods_of_job_set(namespace, one)
            for (namespace, _), one in list(self.store.all_of("rayclusters").items()):
                self._pods_of_ray(namespace, one)
            for (namespace, name), pod in list(self.store.all_of("pods").items()):
                if pod["metadata"].get("deletionTimestamp"):
                    if name not in self.slow:
                        self.store.delete(self.kind("pods"), (namespace, name), 0)
                elif pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
                    let_run(self.store, (namespace, name))

    def _pods_of_job_set(self, namespace: str, one: Any) -> None:
        names = {"jobset.sigs.k8s.io/jobset-name": one["metadata"]["name"]}
        for part in one["spec"]["replicatedJobs"]:
            spec = part["template"]["spec"]
            labels = {**names, "jobset.sigs.k8s.io/replicatedjob-name": part["name"]}
            count = part.get("replicas", 1) * spec.get("parallelism", 1)
            self._make(namespace, one, f"{one['metadata']['name']}-{part['name']}", count, spec["template"], labels)

    def _pods_of_ray(self, namespace: str, one: Any) -> None:
        name, spec = one["metadata"]["name"], one["spec"]
        head = {"ray.io/cluster": name, "ray.io/node-type": "head"}
        self._make(namespace, one, f"{name}-head", 1, spec["headGroupSpec"]["template"], head)
        for group in spec.get("workerGroupSpecs", ()):
            labels = {"ray.io/cluster": name, "ray.io/node-type": "worker", "ray.io/group": group["groupName"]}
            count = group.get("replicas", 1) * group.get("numOfHosts", 1)
            self._make(namespace, one, f"{name}-{group['groupName']}", count, group["template"], labels)

    def _make(self, namespace: str, owner: Any, stem: str, count: int, made_of: Any, labels: dict[str, str]) -> None:
        """Make the pods of a template that are missing; none, and those that are there leave, while it is suspended."""
        there = self.store.all_of("pods")
        for name in (f"{stem}-{i}" for i in range(count)):
            found = there.get((namespace, name))
            if owner["spec"].get("suspend"):
                if found is not None and not found["metadata"].get("deletionTimestamp"):
                    self.store.delete(self.kind("pods"), (namespace, name))
            elif found is None:
                meta = {
                    "name": name,
                    "labels": {**made_of["metadata"]["labels"], **labels},
                    "ownerReferences": [_reference(owner)],
                }
                self.store.create(self.kind("pods"), namespace, {"metadata": meta, "spec": made_of["spec"]})

    # What people and controllers do.

    def make(self, kind: Kind | str, name: str, spec: Any = None, *, namespace: str = "default", **fields: Any) -> Any:
        """Create an object; `labels`, `annotations` and `owner` are of its metadata, others stand beside its spec."""
        found = self.store.kind(*kind.split("/")) if isinstance(kind, str) else kind
        meta: dict[str, Any] = {"name": name, "labels": fields.pop("labels", {})}
        meta["annotations"] = fields.pop("annotations", {})
        if owner := fields.pop("owner", None):
            meta["ownerReferences"] = [_reference(owner)]
        body = {"metadata": meta, **({"spec": spec} if spec is not None else {}), **fields}
        return self.store.create(found, namespace if found.namespaced else "", body)

    def all_end(self, name: str, code: int = 0) -> None:
        """Let all pods of an object end; its controller has noticed by the time that anybody else does."""
        for pod in self.pods_of(name):
            self.ends(pod["metadata"]["name"], code)
        self.controllers.reconcile()

    def change(self, kind: Kind | str, name: str, patch: Any, *, namespace: str = "default", part: str = "") -> None:
        found = self.store.kind(*kind.split("/")) if isinstance(kind, str) else kind
        key = (namespace if found.namespaced else "", name)
        self.store.update(found, key, lambda one: merged(one, patch), part=part)

    def status(self, plural: str, name: str, namespace: str = "default", **status: Any) -> None:
        kind = next(one for one in self.store.kinds.values() if one.plural == plural)
        self.change(kind, name, {"status": status}, namespace=namespace, part="status")

    def priority(self, name: str = HIGH, value: int = 1000, **fields: Any) -> None:
        self.make("scheduling.k8s.io/priorityclasses", name, value=value, **fields)

    def job(self, name: str, size: int, gpus: int = 1, *, pods: Any = None, **spec: Any) -> Any:
        """Create a suspended Job with a queue; `pods` is the template of its pods."""
        labels = spec.pop("labels", QUEUE)
        body = {"suspend": True, "parallelism": size, "completions": size, "completionMode": "Indexed", **spec}
        return self.make("batch/jobs", name, {**body, "template": pods or template(gpus)}, labels=labels)

    def theirs(self, name: str, gpus: int = 1, cpus: str = "1", node: str = "n1", **spec: Any) -> None:
        """Create a pod that another scheduler has bound."""
        self.pod(name, gpus, cpus, **{"schedulerName": "default-scheduler", "nodeName": node, **spec})

    # What is seen.

    @property
    def at_work(self) -> engine.KubernetesEngine:
        """The engine, while a server runs."""
        assert self.engine is not None
        return self.engine

    def pods_of(self, name: str) -> list[Any]:
        """Return the pods that an object's controller has made and that are not over, by name."""
        found = [
            pod
            for pod in self.store.all_of("pods").values()
            if any(one["name"] == name for one in pod["metadata"].get("ownerReferences") or ())
            and pod["status"]["phase"] not in ("Succeeded", "Failed")
        ]
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def nodes_of(self, name: str) -> list[str]:
        """Return where the pods of an object are, '' for those that are nowhere."""
        return [pod["spec"].get("nodeName", "") for pod in self.pods_of(name)]

    def suspended(self, name: str, plural: str = "jobs") -> bool:
        return bool(self.store.all_of(plural)["default", name]["spec"].get("suspend"))

    def requests(self, method: str, part: str) -> int:
        """Return how many requests have named this in their paths."""
        return sum(seen.method == method and part in seen.path for seen in self.api.seen)

    def states(self) -> dict[str, str]:
        return dict(self.jobs())

    def events(self, name: str) -> list[Any]:
        """Return the events about an object, the oldest first."""
        return [one for one in self.store.all_of("events").values() if one["regarding"]["name"] == name]

    async def explained(self, name: str) -> Any:
        """Wait until an event says why an object waits, and return it."""
        await until(lambda: bool(self.events(name)))
        return self.events(name)[-1]

    async def waits(self, *names: str, reason: str = "Unschedulable") -> None:
        """Wait until these pods say that they wait, and for this reason; none of them has a node then."""
        await until(lambda: all(self.says(name)[0] == reason for name in names))
        assert self.where(*names) == [""] * len(names)


def _reference(owner: Any) -> dict[str, Any]:
    meta = owner["metadata"]
    own = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {**own, "controller": True}


@contextlib.asynccontextmanager
async def scene(*nodes: str, kinds: Iterable[Kind] = (), **settings: Any) -> AsyncIterator[Scene]:
    """A cluster with these nodes and further kinds, its kubelets and controllers, and a server with the engine.

    Args:
        settings: as of `Cluster.serving`.
    """
    async with standing(*nodes, kinds=kinds) as c, c.serving(**settings):
        yield c


@contextlib.asynccontextmanager
async def standing(*nodes: str, kinds: Iterable[Kind] = ()) -> AsyncIterator[Scene]:
    """The same without a server."""
    with contextlib.ExitStack() as pace:
        for module, name, value in PACE:
            pace.enter_context(mock.patch.object(module, name, value))
        async with ApiServer(bookmark_s=1.0) as api:
            found = Scene(api)
            for kind in kinds:
                if kind.plural == "podgroups":  # the store keeps one kind of each plural name
                    del api.store.kinds["scheduling.k8s.io", "podgroups"]
                api.store.kinds[kind.group, kind.plural] = kind
            for name in nodes:
                found.node(name)
            kubelets = asyncio.create_task(found.kubelets())
            try:
                yield found
                assert not kubelets.done(), kubelets.exception()
            finally:
                kubelets.cancel()


def in_scene(*nodes: str, kinds: Iterable[Kind] = (), **settings: Any) -> Callable[[Play], Callable[..., None]]:
    """Make a test of a scenario: it gets the scene, and by name what it is parametrized with."""

    def made(play: Play) -> Callable[..., None]:
        @functools.wraps(play)
        def test(**given: Any) -> None:
            async def work() -> None:
                async with scene(*nodes, kinds=kinds, **settings) as c:
                    await play(c, **given)

            run(work)

        signature = inspect.signature(play)
        others = list(signature.parameters.values())[1:]
        vars(test)["__signature__"] = signature.replace(parameters=others)
        del vars(test)["__wrapped__"]
        return test

    return made
