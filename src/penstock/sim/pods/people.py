"""People of a simulated cluster: they submit pods and workloads, delete them, and change their minds."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

from penstock.sim.apiserver.pods import OVER
from penstock.sim.apiserver.selecting import selected
from penstock.sim.apiserver.store import Store
from penstock.sim.pods.checks import GPU
from penstock.sim.pods.devices import claimed_by
from penstock.sim.pods.disks import Disks

SMALL_GPUS = 3
"""Most that the queue `small` may hold at once."""
TEMPLATES = ("one", "two", "large", "part")
"""Of claims."""


class People:
    """Everyone who uses the cluster, until `until_s`."""

    def __init__(
        self, store: Store, rng: random.Random, now_s: Callable[[], float], until_s: float, disks: Disks
    ) -> None:
        self._store, self._rng, self._now_s, self._until_s, self._disks = store, rng, now_s, until_s, disks
        self.wanted: dict[str, dict[str, Any]] = {}
        """Pods without a controller, by name: they are made anew until they have succeeded."""
        self.gangs: dict[str, list[str]] = {}
        self.jobs: list[str] = []
        self._numbers = 0

    def _name(self, prefix: str) -> str:
        self._numbers += 1
        return f"{prefix}{self._numbers}"

    async def run(self) -> None:
        """Submit, delete, relabel."""
        while self._now_s() < self._until_s:
            await asyncio.sleep(self._rng.expovariate(1.5))
            action = self._rng.choices(
                (self.single, self.gang, self.job, self.foreign, self.apart, self.delete, self.budget, self.change,
                 self.elastic, self.change_elastic, self.claiming),
                (4, 3, 3, 2, 1, 2, 2, 2, 2, 1, 4),
            )[0]  # fmt: skip
            action()
        for key in list(self._store.all_of("elasticjobs")):
            self._set_elastic(key, {"suspend": False})

    def body(
        self, name: str, gpus: int, cpus: int = 1, labels: dict[str, str] | None = None, *, size: int = 1, **spec: Any
    ) -> Any:
        asked = {"cpu": str(cpus), **({GPU: str(gpus)} if gpus else {})}
        claimed = sum(claimed_by(self._store, {"metadata": {"name": name}, "spec": spec}).values())
        small = size * (gpus + claimed) <= SMALL_GPUS
        queue = self._rng.choice(({}, {"penstock.dev/queue": "small"})) if small else {}
        return {
            "metadata": {
                "name": name,
                "labels": {**queue, **(labels or {})},
                "annotations": {"test/run-s": f"{self._rng.uniform(0.5, 8.0):.1f}"},
            },
            "spec": {
                "schedulerName": "penstock",
                "terminationGracePeriodSeconds": 1,
                "priorityClassName": self._rng.choice(("", "", "high")),
                "containers": [{"name": "main", "image": "none", "resources": {"limits": asked}}],
                **self._before(),
                **spec,
            },
        }

    def _before(self) -> Any:
        """Return init containers, for some: one that ends before the others begin, or one that runs beside them."""
        if self._rng.random() < 0.7:
            return {}
        policy = {"restartPolicy": "Always"} if self._rng.random() < 0.5 else {}
        cpus = str(self._rng.randint(1, 2))
        return {
            "initContainers": [{"name": "first", "image": "none", "resources": {"limits": {"cpu": cpus}}, **policy}]
        }

    def _want(self, body: Any) -> None:
        self.wanted[body["metadata"]["name"]] = body
        self._store.create(self._store.kind("", "pods"), "default", body)

    def single(self) -> None:
        name = self._name("p")
        self._want(self.body(name, self._rng.randint(0, 2), self._rng.randint(1, 3), **self._disks.for_pods(name)))

    def gang(self) -> None:
        name, size, gpus = self._name("g"), self._rng.randint(2, 4), self._rng.randint(0, 2)
        labels = {"penstock.dev/gang": name, "penstock.dev/gang-size": str(size)}
        first = self.body(name, gpus, labels=labels, size=size, **self._disks.for_pods(name))
        self.gangs[name] = [f"{name}-{i}" for i in range(size)]
        for pod in self.gangs[name]:
            self._want({**first, "metadata": {**first["metadata"], "name": pod}})

    def claiming(self) -> None:
        """Pods with devices by claims: one, a gang, pods that share a claim, or a Job."""
        name, size = self._name("c"), self._rng.randint(1, 3)
        labels = {"penstock.dev/gang": name, "penstock.dev/gang-size": str(size)}
        uses: dict[str, str] = {"resourceClaimTemplateName": self._rng.choice(TEMPLATES)}
        if size > 1 and self._rng.random() < 0.4:
            spec = self._store.all_of("resourceclaimtemplates")["default", uses["resourceClaimTemplateName"]]["spec"]
            kind = self._store.kind("resource.k8s.io", "resourceclaims")
            self._store.create(kind, "default", {"metadata": {"name": name}, "spec": spec["spec"]})
            uses = {"resourceClaimName": name}
        claims = [{"name": "devices", **uses}]
        if self._rng.random() < 0.3:
            self.job(resourceClaims=claims)
            return
        first = self.body(name, 0, labels=labels, size=size, resourceClaims=claims)
        self.gangs[name] = [f"{name}-{i}" for i in range(size)]
        for pod in self.gangs[name]:
            self._want({**first, "metadata": {**first["metadata"], "name": pod}})

    def apart(self) -> None:
        """Pods of which no two may be on one node."""
        name = self._name("a")
        term = {"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": "kubernetes.io/hostname"}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        for i in range(2):
            self._want(self.body(f"{name}-{i}", 0, labels={"app": name}, affinity=affinity))

    def job(self, **spec_of_pods: Any) -> None:
        name, size = self._name("j"), self._rng.randint(1, 3)
        self.jobs.append(name)
        more = {**self._disks.for_pods(name), **spec_of_pods}
        template = self.body(name, self._rng.randint(0, 2), size=size, **more)
        queue = template["metadata"]["labels"].get("penstock.dev/queue", "default")
        spec = {
            "suspend": self._rng.random() < 0.8,
            "parallelism": size,
            "completions": size + self._rng.randint(0, 2),
            "completionMode": self._rng.choice(("Indexed", "NonIndexed")),
            "template": {"metadata": {**template["metadata"], "name": ""}, "spec": template["spec"]},
        }
        body = {"metadata": {"name": name, "labels": {"penstock.dev/queue": queue}}, "spec": spec}
        self._store.create(self._store.kind("batch", "jobs"), "default", body)
        if self._rng.random() < 0.3:
            self._guard({"batch.kubernetes.io/job-name": name}, size)

    def elastic(self) -> None:
        name, low = self._name("e"), self._rng.randint(1, 2)
        made = self.body(name, self._rng.randint(0, 2), size=low + 1, **self._disks.for_pods(name))
        queue = made["metadata"]["labels"].pop("penstock.dev/queue", "")
        spec = {
            "template": {"metadata": {"annotations": made["metadata"]["annotations"]}, "spec": made["spec"]},
            "scaling": {"minReplicas": low, "maxReplicas": low + self._rng.randint(0, 1)},
            "queue": queue,
            "priority": self._rng.choice((100, 500, 900)),
            "maxRestarts": self._rng.randint(0, 20),
        }
        body = {"metadata": {"name": name}, "spec": spec}
        self._store.create(self._store.kind("penstock.dev", "elasticjobs"), "default", body)

    def change_elastic(self) -> None:
        """Suspend an ElasticJob, let it go on, give it another range or priority, or delete it."""
        keys = sorted(self._store.all_of("elasticjobs"))
        if not keys:
            return
        key = self._rng.choice(keys)
        low = self._rng.randint(1, 2)
        scaling = {"minReplicas": low, "maxReplicas": low + self._rng.randint(0, 1)}
        change: dict[str, Any] = self._rng.choice(
            ({"suspend": True}, {"suspend": False}, {"scaling": scaling}, {"priority": 700}, {})
        )
        if change:
            self._set_elastic(key, change)
        else:
            self._store.delete(self._store.kind("penstock.dev", "elasticjobs"), key)

    def _set_elastic(self, key: tuple[str, str], change: dict[str, Any]) -> None:
        kind = self._store.kind("penstock.dev", "elasticjobs")
        self._store.update(kind, key, lambda one: {**one, "spec": {**one["spec"], **change}})

    def foreign(self) -> None:
        body = self.body(self._name("f"), self._rng.randint(0, 1), schedulerName="default-scheduler")
        self._store.create(self._store.kind("", "pods"), "default", body)

    def budget(self) -> None:
        running = [p for p in self._store.all_of("pods").values() if p["status"]["phase"] == "Running"]
        if running:
            labels = self._rng.choice(running)["metadata"].get("labels") or {}
            selector = {"matchLabels": labels}
            self._guard(labels, sum(selected(selector, pod) for pod in running) - self._rng.randint(0, 1))

    def _guard(self, labels: dict[str, str], least: int) -> None:
        spec = {"selector": {"matchLabels": labels}, "minAvailable": least}
        body = {"metadata": {"name": self._name("b")}, "spec": spec}
        self._store.create(self._store.kind("policy", "poddisruptionbudgets"), "default", body)

    def delete(self) -> None:
        names = [name for (_, name), pod in self._store.all_of("pods").items() if pod["status"]["phase"] not in OVER]
        if names and self._rng.random() < 0.7:
            self._store.delete(self._store.kind("", "pods"), ("default", self._rng.choice(sorted(names))), 1)
        elif self.jobs:
            with_grace = ("default", self._rng.choice(self.jobs))
            if with_grace in self._store.all_of("jobs"):
                self._store.delete(self._store.kind("batch", "jobs"), with_grace)

    def delete_beside(self, name: str) -> None:
        """Delete another pod of a pod's gang, for which it would have to wait."""
        for pods in self.gangs.values():
            others = [one for one in pods if one != name and ("default", one) in self._store.all_of("pods")]
            if name in pods and others:
                self._store.delete(self._store.kind("", "pods"), ("default", others[0]), 1)

    def change(self) -> None:
        """Delete a pod that waits, and create another one of its name that asks for more."""
        waiting = [
            name
            for name in sorted(self.wanted)
            if name.startswith("p")
            and (pod := self._store.all_of("pods").get(("default", name))) is not None
            and not pod["spec"].get("nodeName")
        ]
        if waiting:
            name = self._rng.choice(waiting)
            self._store.delete(self._store.kind("", "pods"), ("default", name), 0)
            self._want(self.body(name, 2, 3))
