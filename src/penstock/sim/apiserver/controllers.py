"""What kube-controller-manager and kubelets do, as far as schedulers notice: Jobs make pods, budgets are counted,
owners take what they own along, and what is bound runs.

One call of `reconcile` brings everything one step on; tests call it as often as they like.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.sim.apiserver.claims import ClaimController, trouble_with
from penstock.sim.apiserver.pods import OVER, set_condition
from penstock.sim.apiserver.refusals import Refused
from penstock.sim.apiserver.selecting import Object, selected
from penstock.sim.apiserver.store import Key, Store, merged, passed_s
from penstock.sim.apiserver.volumes import VolumeControllers

STALE_S = 120
"""A pod that was to leave, and has not been deleted after this long, stays."""
INDEX = "batch.kubernetes.io/job-completion-index"


class Controllers:
    """The controllers of a store."""

    def __init__(self, store: Store) -> None:
        self._store, self._seen = store, 0
        self.volumes = VolumeControllers(store)
        self._claims = ClaimController(store)

    def reconcile(self) -> None:
        if self._seen == self._store.version:
            return  # nothing has changed since
        self._seen = self._store.version
        self._collect()
        for key, job in list(self._store.all_of("jobs").items()):
            self._job(key, job)
        for key, pod in list(self._store.all_of("pods").items()):
            self._stale(key, pod)
        for key, budget in list(self._store.all_of("poddisruptionbudgets").items()):
            self._budget(key, budget)
        self.volumes.reconcile()
        self._claims.reconcile()

    def _collect(self) -> None:
        """Delete objects whose owner is gone."""
        uids = {one["metadata"]["uid"] for kind in self._store.kinds.values() for one in self._all(kind.plural)}
        for kind in self._store.kinds.values():
            for key, one in list(self._store.all_of(kind.plural).items()):
                owners = one["metadata"].get("ownerReferences") or ()
                gone = owners and all(owner["uid"] not in uids for owner in owners)
                if gone and not one["metadata"].get("deletionTimestamp"):
                    self._store.delete(kind, key)

    def _all(self, plural: str) -> Iterator[Object]:
        yield from self._store.all_of(plural).values()

    # Jobs. Source: pkg/controller/job of Kubernetes.

    def _job(self, key: Key, job: Object) -> None:
        spec, conditions = job["spec"], job["status"].get("conditions", ())
        if any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in conditions):
            return
        pods = [pod for pod in self._all("pods") if _owned(pod, job)]
        active = [pod for pod in pods if pod["status"]["phase"] not in OVER and not _leaving(pod)]
        done = sum(pod["status"]["phase"] == "Succeeded" for pod in pods)
        failed = sum(pod["status"]["phase"] == "Failed" for pod in pods)
        wanted = spec["parallelism"] if spec.get("completions") is None else spec["completions"] - done
        if spec["suspend"]:
            for pod in active:
                self._delete_pod(pod)
            active = []
        elif failed <= spec["backoffLimit"]:
            active += self._make_pods(job, pods, min(spec["parallelism"], wanted) - len(active))
        self._set_job(key, job, len(active), done, failed)

    def _make_pods(self, job: Object, pods: list[Object], missing: int) -> list[Object]:
        made = []
        taken = {_index(pod) for pod in pods if pod["status"]["phase"] != "Failed" and not _leaving(pod)}
        free = (index for index in range(job["spec"].get("completions") or 10**6) if str(index) not in taken)
        for _ in range(max(0, missing)):
            made.append(self._make_pod(job, next(free)))
        return made

    def _make_pod(self, job: Object, index: int) -> Object:
        template, meta = job["spec"]["template"], job["metadata"]
        indexed = job["spec"]["completionMode"] == "Indexed"
        labels = {**(template.get("metadata", {}).get("labels") or {}), "batch.kubernetes.io/job-name": meta["name"]}
        own = {INDEX: str(index)} if indexed else {}
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True}
        body = {
            "metadata": {
                "generateName": f"{meta['name']}-{index}-" if indexed else f"{meta['name']}-",
                "labels": {**labels, **own},
                "annotations": {**(template.get("metadata", {}).get("annotations") or {}), **own},
                "ownerReferences": [owner],
            },
            "spec": {**({"hostname": f"{meta['name']}-{index}"} if indexed else {}), **template["spec"]},
        }
        return self._store.create(self._store.kind("", "pods"), meta["namespace"], body)

    def _delete_pod(self, pod: Object) -> None:
        self._store.delete(self._store.kind("", "pods"), (pod["metadata"]["namespace"], pod["metadata"]["name"]))

    def _set_job(self, key: Key, job: Object, active: int, done: int, failed: int) -> None:
        spec, kind = job["spec"], self._store.kind("batch", "jobs")

        status = {"active": active, "succeeded": done, "failed": failed}
        shown = next((c["status"] for c in job["status"].get("conditions", ()) if c["type"] == "Suspended"), "False")
        suspended = str(bool(spec["suspend"]))
        ends = failed > spec["backoffLimit"] or (spec.get("completions") is not None and done >= spec["completions"])
        if (
            not ends
            and shown == suspended
            and all(job["status"].get(name) == number for name, number in status.items())
        ):
            return

        def counted(one: Object) -> Object:
            one["status"] = {**one["status"], **status}
            now = self._store.now()
            if shown != suspended:
                reason = "JobSuspended" if spec["suspend"] else "JobResumed"
                set_condition(one, "Suspended", suspended, reason, "", now)
            if failed > spec["backoffLimit"]:
                set_condition(one, "Failed", "True", "BackoffLimitExceeded", "", now)
            elif spec.get("completions") is not None and done >= spec["completions"]:
                set_condition(one, "Complete", "True", "CompletionsReached", "", now)
            return one

        self._store.update(kind, key, counted, part="status")

    # Budgets. Source: pkg/controller/disruption of Kubernetes.

    def _stale(self, key: Key, pod: Object) -> None:
        """Take back that a pod is to leave, once it has not been deleted for long."""
        found = next((c for c in pod["status"].get("conditions", ()) if c["type"] == "DisruptionTarget"), None)
        if found is None or found["status"] != "True" or _leaving(pod) or pod["status"]["phase"] in OVER:
            return
        if passed_s(found.get("lastTransitionTime"), self._store.now()) > STALE_S:

            def taken_back(one: Object) -> Object:
                set_condition(one, "DisruptionTarget", "False", "", "", self._store.now())
                return one

            self._store.update(self._store.kind("", "pods"), key, taken_back, part="status")

    def _budget(self, key: Key, budget: Object) -> None:
        healthy, least = budget_of(self._store, budget)
        healthy -= self._promised(budget)
        expected = len(_pods_of(self._store, budget)) if "minAvailable" in budget["spec"] else 0
        counts = {
            "disruptionsAllowed": max(0, healthy - least) if expected else 0,
            "currentHealthy": healthy,
            "desiredHealthy": least,
            "expectedPods": expected,
        }
        if any(budget.get("status", {}).get(name) != number for name, number in counts.items()):
            kind = self._store.kind("policy", "poddisruptionbudgets")
            self._store.update(kind, key, lambda one: merged(one, {"status": counts}), part="status")

    def _promised(self, budget: Object) -> int:
        """Return how many healthy pods an eviction was granted for, that has not deleted them yet."""
        since, now = budget.get("status", {}).get("disruptedPods", {}), self._store.now()
        pods = (pod for pod in _pods_of(self._store, budget) if ready(pod) and not _leaving(pod)) if since else ()
        names = (pod["metadata"]["name"] for pod in pods)
        return sum(name in since and passed_s(since[name], now) <= STALE_S for name in names)


def budget_of(store: Store, budget: Object) -> tuple[int, int]:
    """Return how many pods of a budget are healthy, and how many have to be.

    Only `minAvailable` as a number counts pods: other budgets go by the scale of what owns the pods, and allow nothing
    for pods of Jobs and for those that nobody owns, as these have none.
    """
    healthy = sum(ready(pod) and not _leaving(pod) for pod in _pods_of(store, budget))
    return healthy, int(budget["spec"].get("minAvailable", 0))


def _pods_of(store: Store, budget: Object) -> list[Object]:
    spec, namespace = budget["spec"], budget["metadata"]["namespace"]
    return [
        pod
        for pod in store.all_of("pods").values()
        if pod["metadata"]["namespace"] == namespace and selected(spec.get("selector"), pod)
    ]


def ready(pod: Object) -> bool:
    """Return whether a pod says that it is ready."""
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))


def let_run(store: Store, key: Key) -> None:
    """Say of a pod that it runs, as its kubelet does."""

    def running(one: Object) -> Object:
        one["status"]["phase"] = "Running"
        set_condition(one, "Ready", "True", "", "", store.now())
        return one

    store.update(store.kind("", "pods"), key, running, part="status")


class Kubelets:
    """All kubelets: they admit what fits, run it, and let go of what is deleted.

    Args:
        run_s: gives how long a pod runs, None for ever, by its annotation `test/run-s`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._began: dict[str, float] = {}
        self.refused: list[str] = []
        """Pods that did not fit on their node, as `OutOfcpu` and the like."""

    def reconcile(self, now_s: float) -> None:
        for key, pod in list(self._store.all_of("pods").items()):
            if not pod["spec"].get("nodeName"):
                continue
            if _leaving(pod):
                if pod["status"]["phase"] not in OVER and pod["metadata"].get("finalizers"):
                    self._set(key, phase="Failed")
                self._store.delete(self._store.kind("", "pods"), key, 0)
            elif pod["status"]["phase"] == "Pending":
                self._admit(key, pod, now_s)
            elif pod["status"]["phase"] == "Running":
                self._run(key, pod, now_s)

    def _admit(self, key: Key, pod: Object, now_s: float) -> None:
        short = short_of(self._store, pod, admitted=True)
        if short:
            self.refused.append(f"{key[1]}: {short}")
            self._set(key, phase="Failed", reason=f"OutOf{short}", message=f"Node didn't have enough resource: {short}")
            return
        trouble = trouble_with(self._store, pod)
        if trouble:
            self.refused.append(f"{key[1]}: {trouble}")
            return  # it looks again
        self._began[pod["metadata"]["uid"]] = now_s
        let_run(self._store, key)

    def _run(self, key: Key, pod: Object, now_s: float) -> None:
        run_s = (pod["metadata"].get("annotations") or {}).get("test/run-s")
        began_s = self._began.setdefault(pod["metadata"]["uid"], now_s)
        if run_s is not None and now_s - began_s >= float(run_s):
            self.end(key, int((pod["metadata"].get("annotations") or {}).get("test/exit-code", "0")))

    def end(self, key: Key, code: int = 0) -> None:
        """Let a pod end."""
        ended = {"name": "main", "state": {"terminated": {"exitCode": code}}}
        self._set(key, phase="Failed" if code else "Succeeded", containerStatuses=[ended])

    def _set(self, key: Key, **status: Any) -> None:
        kind = self._store.kind("", "pods")
        self._store.update(kind, key, lambda one: merged(one, {"status": status}), part="status")


def short_of(store: Store, pod: Object, *, admitted: bool = False) -> str:
    """Return the resource of which a pod's node has too little for it beside those that are bound to it, or ''.

    Amounts of tests are plain whole numbers.

    Args:
        admitted: beside those alone that run already, as the kubelet judges one pod after the other.
    """
    try:
        node = store.get(store.kind("", "nodes"), ("", pod["spec"]["nodeName"]))
    except Refused:
        return "node"
    allocatable = node["status"].get("allocatable", {})
    own = _asked(pod)
    sums = dict(own)
    for other in store.all_of("pods").values():
        there = other["spec"].get("nodeName") == pod["spec"]["nodeName"] and other["status"]["phase"] not in OVER
        if not there or other["metadata"].get("uid") == pod["metadata"].get("uid"):
            continue
        if not admitted or other["status"]["phase"] == "Running":
            for name, number in _asked(other).items():
                sums[name] = sums.get(name, 0) + number
    return next((n for n in own if n in allocatable and sums[n] > int(str(allocatable[n]).removesuffix("Gi"))), "")


def _asked(pod: Object) -> dict[str, int]:
    """Return what a pod takes. Source: pkg/kubelet/lifecycle and component-helpers/resource of Kubernetes."""
    found: dict[str, int] = {}
    beside: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod["spec"]["containers"]:
        found = _more(found, _of(container))
    for container in pod["spec"].get("initContainers", ()):
        if container.get("restartPolicy") == "Always":
            beside = _more(beside, _of(container))
            peak = {**peak, **{name: max(n, peak.get(name, 0)) for name, n in beside.items()}}
        else:
            step = _more(beside, _of(container))
            peak = {**peak, **{name: max(n, peak.get(name, 0)) for name, n in step.items()}}
    found = _more(found, beside)
    return {**found, **{name: max(n, found.get(name, 0)) for name, n in peak.items()}, "pods": 1}


def _of(container: Object) -> dict[str, int]:
    requests = container.get("resources", {}).get("requests") or {}
    return {name: int(str(text).removesuffix("Gi")) for name, text in requests.items()}


def _more(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _owned(pod: Object, job: Object) -> bool:
    return any(owner["uid"] == job["metadata"]["uid"] for owner in pod["metadata"].get("ownerReferences") or ())


def _index(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(INDEX, ""))


def _leaving(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))
