"""One node as the engine knows it: its pods, what of it is ours, and the reports that follow."""

from collections.abc import Iterable
from typing import NamedTuple

from penstock.core.messages.reports import NodeCheck, NodeReport, ProgressSeen, ReplicaKey, ReplicaSeen, SeenState
from penstock.core.model.affinity import Repels
from penstock.core.model.cluster import NodeSpec, OthersLoad
from penstock.core.model.ids import AttemptNumber, Incarnation, JobId, NodeName, Rank
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.resources import Device, ReplicaAsk
from penstock.engines.kubernetes.amounts import Sums, sum_of
from penstock.engines.kubernetes.asks import SCHEDULER
from penstock.engines.kubernetes.names import DEVICES_ANNOTATION, REPLICA_ANNOTATION
from penstock.engines.kubernetes.nodes import device_counts, host_of
from penstock.engines.kubernetes.objects.pods import Pod

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


class Standing(NamedTuple):
    """What a pod is for the load of its node."""

    key: ReplicaKey | None = None
    """The replica that it is; None for a pod of somebody else."""
    sums: Sums = {}  # noqa: RUF012 - read only
    selected: tuple[str, ...] = ()
    """Selectors that select it; of a replica those that its job's ask does not name."""
    repels: tuple[Repels, ...] = ()
    """Whom its rules keep off; of a replica those that its job's ask does not name."""
    devices: frozenset[int] = frozenset()
    """Of a replica: those that it was counted with."""


class OnNode:
    """The pods of one node."""

    def __init__(self, name: NodeName) -> None:
        self.name = name
        self.pods: dict[str, Pod] = {}
        self._standing: dict[str, Standing] = {}
        self._pod_of: dict[ReplicaKey, str] = {}
        self.exits: dict[ReplicaKey, ReplicaSeen] = {}
        """Ends of replicas that the server has not acknowledged."""
        self.starting: dict[ReplicaKey, tuple[int, ...]] = {}
        """Replicas that have no pod yet, or none any more and get another, and the devices that they were given."""
        self.binding: dict[ReplicaKey, Sums] = {}
        """What pods take that are being bound, or are bound and not seen to stand here yet."""
        self.stopping: set[ReplicaKey] = set()
        """Replicas that are asked to leave."""
        self.evicted: set[ReplicaKey] = set()
        """Replicas whose pods were evicted: that may show no sooner than when they are gone."""
        self.checkpoints: dict[ReplicaKey, int] = {}
        """Steps of checkpoints that pods told of and the server was not told."""
        self.check: NodeCheck | None = None
        self.seq = 0

    def put(self, pod: Pod, standing: Standing) -> None:
        """Add a pod, or its newer version."""
        known = self._standing.get(pod.key)
        if known is not None and known.key is not None and known.key != standing.key:
            self._pod_of.pop(known.key, None)
        self.pods[pod.key], self._standing[pod.key] = pod, standing
        if standing.key is not None:
            self._pod_of[standing.key] = pod.key
            self.binding.pop(standing.key, None)

    def take(self, pod: Pod) -> ReplicaKey | None:
        """Remove a pod that is gone or over, and return the replica that it was."""
        self.pods.pop(pod.key, None)
        standing = self._standing.pop(pod.key, None)
        if standing is None or standing.key is None:
            return None
        if self._pod_of.get(standing.key) == pod.key:
            del self._pod_of[standing.key]
        return standing.key

    def ended(self, key: ReplicaKey, pod: Pod) -> None:
        """Note how a replica ended with its pod."""
        stopped = pod.leaving or key in self.stopping or key in self.evicted
        gone = ExitInfo(problem=POD + GONE, stop_sent=stopped)
        self.exits[key] = ReplicaSeen(key, "exited", exit=exit_of(pod) if pod.over else gone)

    def failed(self, key: ReplicaKey, problem: str, *, stopped: bool = False) -> None:
        """Note that a replica could not be started, or ended without a pod; how it was seen to end counts more."""
        info = ExitInfo(problem=POD + problem, stop_sent=stopped)
        self.exits.setdefault(key, ReplicaSeen(key, "exited", exit=info))

    def acknowledged(self, key: ReplicaKey) -> None:
        """Forget an end that is in the log."""
        self.exits.pop(key, None)
        self.binding.pop(key, None)
        self.stopping.discard(key)
        self.evicted.discard(key)

    def finished(self, key: ReplicaKey, problem: str) -> None:
        """Note that a replica's workload has ended; '' is a success."""
        info = ExitInfo(1, note=problem, observed=True) if problem else ExitInfo(0)
        self.exits[key] = ReplicaSeen(key, "exited", exit=info)

    def pod_of(self, key: ReplicaKey) -> Pod | None:
        name = self._pod_of.get(key)
        return self.pods[name] if name is not None else None

    def standing_of(self, pod: Pod) -> Standing | None:
        return self._standing.get(pod.key)

    def short_for(self, spec: NodeSpec, ask: ReplicaAsk) -> str:
        """Return what a pod with this ask would find too little of beside the pods that stand here; '' if nothing.

        Those that are being bound count as well: pods of one gang are bound at the same time.
        """
        sums = sum_of((*(one.sums for one in self._standing.values()), *self.binding.values()))
        short = ask.host.shortage(spec.capacity - host_of(sums))
        if short is not None or ask.devices is None:
            return short or ""
        taken, vendor = device_counts(sums), ask.devices.vendor
        left = sum(one.vendor == vendor for one in spec.devices) - taken.get(vendor, 0)
        return vendor if ask.devices.count > left else ""

    def report(self, spec: NodeSpec, incarnation: Incarnation) -> NodeReport:
        """Return everything that is known now, as the node's next report."""
        self.seq += 1
        seen = {key: ReplicaSeen(key, "starting") for key in self.starting}
        ours: set[int] = set()
        for name, pod in self.pods.items():
            standing = self._standing[name]
            if standing.key is not None:
                seen[standing.key] = ReplicaSeen(standing.key, _state(pod))
                ours |= standing.devices
        for planned in self.starting.values():
            ours |= set(planned)
        seen |= self.exits
        check, self.check = self.check, None
        told, self.checkpoints = self.checkpoints, {}
        return NodeReport(
            self.name,
            incarnation,
            self.seq,
            inventory=True,
            replicas=tuple(seen[key] for key in sorted(seen)),
            progress=tuple(ProgressSeen(key, "checkpoint", step) for key, step in sorted(told.items())),
            others=self._load(spec.devices, ours),
            check=check,
        )

    def _load(self, devices: tuple[Device, ...], ours: set[int]) -> OthersLoad:
        """Return the load of others. Which devices they have the API does not say: the last ones that are not ours."""
        standing = self._standing.values()
        sums = sum_of(one.sums for one in standing if one.key is None)
        held: list[int] = []
        for vendor, count in device_counts(sums).items():
            free = [one.index for one in reversed(devices) if one.vendor == vendor and one.index not in ours]
            held += free[:count]
        return OthersLoad(
            host_of(sums),
            tuple(sorted(held)),
            _tally(name for one in standing for name in one.selected),
            tuple(sorted({repels for one in standing for repels in one.repels})),
        )


def _tally(names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return tuple(sorted(found.items()))


def devices_of(pod: Pod) -> frozenset[int]:
    """Return the devices that a pod of ours was counted with, as its Binding wrote them."""
    text = pod.metadata.annotations.get(DEVICES_ANNOTATION, "")
    return frozenset({int(part) for part in text.split(",") if part.isdecimal()})


def _state(pod: Pod) -> SeenState:
    if pod.leaving:
        return "stopping"
    return "running" if pod.status.phase == "Running" else "starting"
