"""One node as the engine knows it: its pods, what of it is ours, and the reports that follow."""

from penstock.core.messages.reports import NodeCheck, NodeReport, ReplicaKey, ReplicaSeen, SeenState
from penstock.core.model.cluster import NodeSpec, OthersLoad
from penstock.core.model.ids import AttemptNumber, Incarnation, JobId, NodeName, Rank
from penstock.core.model.jobs import ExitInfo
from penstock.engines.kubernetes.amounts import BadAmount, Sums, pod_sums, sum_of
from penstock.engines.kubernetes.nodes import device_count, host_of
from penstock.engines.kubernetes.objects import Pod
from penstock.engines.kubernetes.pods import DEVICES_ANNOTATION, REPLICA_ANNOTATION, SCHEDULER

POD = "pod: "
"""Begins the causes of ends that are no fault of the node."""
GONE = "it is gone"


def replica_of(pod: Pod) -> ReplicaKey | None:
    """Return which replica a bound pod claims to be, as its Binding wrote it; None where it claims nothing.

    Whoever makes a pod can write that: the engine checks that it is a pod of the job's gang.
    """
    if pod.spec.scheduler_name != SCHEDULER:
        return None
    parts = pod.metadata.annotations.get(REPLICA_ANNOTATION, "").split(".")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        return None
    return ReplicaKey(JobId(int(parts[0])), AttemptNumber(int(parts[1])), Rank(int(parts[2])))


def exit_of(pod: Pod) -> ExitInfo:
    """Return how a pod ended."""
    stopped = pod.metadata.deletion_timestamp is not None
    if pod.status.phase == "Succeeded":
        return ExitInfo(0, stop_sent=stopped)
    ends = [s.state.terminated for s in pod.status.container_statuses if s.state.terminated is not None]
    failed = next((end for end in ends if end.exit_code), None)
    if failed is not None:
        signal = failed.signal or (failed.exit_code - 128 if failed.exit_code > 128 else 0)
        note = failed.reason if failed.reason not in ("", "Error", "Completed") else ""
        if signal:
            return ExitInfo(signal=signal, stop_sent=stopped, note=note, observed=bool(note))
        return ExitInfo(failed.exit_code, stop_sent=stopped, note=note, observed=bool(note))
    text = ": ".join(filter(None, (pod.status.reason, pod.status.message)))
    return ExitInfo(problem=POD + (text or "the kubelet did not say why it failed"), stop_sent=stopped)


class OnNode:
    """The pods of one node. Amounts that cannot be read count as nothing: the kubelet refuses such pods."""

    def __init__(self, name: NodeName) -> None:
        self.name = name
        self.pods: dict[str, Pod] = {}
        self._keys: dict[str, ReplicaKey] = {}
        """Which replicas the pods of ours are."""
        self._sums: dict[str, Sums] = {}
        self.exits: dict[ReplicaKey, ReplicaSeen] = {}
        """Ends of replicas that the server has not acknowledged."""
        self.starting: dict[ReplicaKey, tuple[int, ...]] = {}
        """Bindings that are under way, and the devices that they were planned with."""
        self.stopping: set[ReplicaKey] = set()
        """Replicas that are asked to leave."""
        self.check: NodeCheck | None = None
        self.seq = 0

    def put(self, pod: Pod, key: ReplicaKey | None) -> None:
        """Add a pod, or its newer version; `key` is the replica that it is, None for a pod of somebody else."""
        known = self.pods.get(pod.key)
        self.pods[pod.key] = pod
        if key is None:
            self._keys.pop(pod.key, None)
        else:
            self._keys[pod.key] = key
        if known is None or known.spec != pod.spec or known.status != pod.status:
            try:
                self._sums[pod.key] = pod_sums(pod)
            except BadAmount:
                self._sums[pod.key] = {}

    def take(self, pod: Pod, key: ReplicaKey | None) -> None:
        """Remove a pod that is gone or over, and remember how it ended: also of one that ended while nobody looked."""
        self._sums.pop(pod.key, None)
        key = self._keys.pop(pod.key, key)
        if self.pods.pop(pod.key, None) is None and not pod.over:
            return
        if key is not None:
            stopped = pod.metadata.deletion_timestamp is not None
            info = exit_of(pod) if pod.over else ExitInfo(problem=POD + GONE, stop_sent=stopped)
            self.exits[key] = ReplicaSeen(key, "exited", exit=info)

    def failed(self, key: ReplicaKey, problem: str) -> None:
        """Note that a replica could not be started."""
        self.exits[key] = ReplicaSeen(key, "exited", exit=ExitInfo(problem=POD + problem))

    def pod_of(self, key: ReplicaKey) -> Pod | None:
        return next((self.pods[name] for name, known in self._keys.items() if known == key), None)

    def report(self, spec: NodeSpec, incarnation: Incarnation) -> NodeReport:
        """Return everything that is known now, as the node's next report."""
        self.seq += 1
        seen = {key: ReplicaSeen(key, "starting") for key in self.starting}
        ours: set[int] = set()
        others: list[Sums] = []
        for name, pod in self.pods.items():
            key = self._keys.get(name)
            if key is None:
                others.append(self._sums[name])
            else:
                seen[key] = ReplicaSeen(key, _state(pod))
                ours |= devices_of(pod)
        for planned in self.starting.values():
            ours |= set(planned)
        seen |= self.exits
        check, self.check = self.check, None
        return NodeReport(
            self.name,
            incarnation,
            self.seq,
            inventory=True,
            replicas=tuple(seen[key] for key in sorted(seen)),
            others=_load(sum_of(others), len(spec.devices), ours),
            check=check,
        )


def _load(sums: Sums, devices: int, ours: set[int]) -> OthersLoad:
    """Return the load of others. Which devices they have the API does not say: the last ones that are not ours."""
    _, count = device_count(sums)
    free = [index for index in reversed(range(devices)) if index not in ours]
    return OthersLoad(host_of(sums), tuple(sorted(free[:count])))


def devices_of(pod: Pod) -> set[int]:
    """Return the devices that a pod of ours was counted with."""
    text = pod.metadata.annotations.get(DEVICES_ANNOTATION, "")
    return {int(part) for part in text.split(",") if part.isdecimal()}


def _state(pod: Pod) -> SeenState:
    if pod.metadata.deletion_timestamp is not None:
        return "stopping"
    return "running" if pod.status.phase == "Running" else "starting"
