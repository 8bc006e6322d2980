"""The allocations of a pilot over time: what Slurm said of each last, and what became of its nodes."""

from collections.abc import Container, Iterable, Mapping, Sequence

from penstock.core.model.ids import NodeName
from penstock.engines.slurm.pilot.lent import LentJob
from penstock.engines.slurm.pilot.server import PilotNode
from penstock.engines.slurm.pilot.sizing import Allocation

ABSENT_MAX = 2
"""Answers in a row without an allocation after which it is over: one answer without it means nothing."""
SILENT_S = 1.0
"""After the end of an allocation its nodes may be gone once their agents have been without a connection for so long."""


def names_of(number: str, nodes: int) -> tuple[NodeName, ...]:
    """Return the names of the nodes of an allocation, in the order in which Slurm numbers them."""
    return tuple(NodeName(f"slurm-{number}-{index}") for index in range(nodes))


class Lent:
    """One allocation."""

    def __init__(self, job: LentJob) -> None:
        self.job = job
        self.keys_made = False
        """Its nodes were declared, and their keys are in its folder."""
        self.absent = 0
        self.returned = False
        """It is given back: nothing is placed there."""
        self.told_end_s = 0
        """The end of which the server was told."""
        self.leaving = False
        """Its jobs are asked to leave, for it is about to end."""
        self.idle_since_s = 0.0
        self.came = False
        """One of its nodes has joined."""
        self.judged = False
        """Whether it has come to anything is known, and counts."""
        self.over_s = 0.0
        """Since when it is over."""
        self.silent_s = 0.0
        """Since when it is over and none of its nodes is connected."""

    @property
    def names(self) -> tuple[NodeName, ...]:
        return names_of(self.job.number, self.job.nodes)

    @property
    def over(self) -> bool:
        return self.job.stage == "ended" or self.absent >= ABSENT_MAX

    @property
    def sure(self) -> bool:
        """Whether Slurm itself says that it is over, and has ended its processes."""
        return self.job.sure


class Fleet:
    """All allocations that are not over, or whose nodes are not gone yet."""

    def __init__(self) -> None:
        self.lent: dict[tuple[str, int], Lent] = {}

    def see(self, jobs: Mapping[tuple[str, int], LentJob], declared: Iterable[NodeName], now_s: float) -> None:
        """Take what Slurm says now.

        Args:
            declared: nodes of the pilot that the server knows: an allocation that is over when it is first seen matters
                only where it has some.
        """
        known = {name.rsplit("-", 1)[0] for name in declared}
        for key, job in jobs.items():
            one = self.lent.get(key)
            if one is None:
                if job.stage == "ended" and f"slurm-{job.number}" not in known:
                    continue
                one = self.lent[key] = Lent(job)
            one.job, one.absent = job, 0
        for key, one in self.lent.items():
            if key not in jobs:
                one.absent += 1
            if one.over and not one.over_s:
                one.over_s = now_s

    def count(self, nodes: Mapping[NodeName, PilotNode], now_s: float) -> list[Allocation]:
        """Return the allocations as they count for the number of nodes, by what the log has of their nodes."""
        found = []
        for one in self.lent.values():
            if one.over:
                continue
            here = [nodes[name] for name in one.names if name in nodes and nodes[name].ready]
            busy = any(node.jobs for node in here)
            one.idle_since_s = 0.0 if busy or not here else one.idle_since_s or now_s
            ending = one.returned or one.leaving or one.job.stage == "leaving"
            found.append(
                Allocation(
                    number=one.job.number,
                    nodes=one.job.nodes,
                    phase="asked" if one.job.stage == "asked" else "ending" if ending else "held",
                    asked_s=float(one.job.submit_s),
                    began_s=float(one.job.start_s) if one.job.stage != "asked" else 0.0,
                    joined=len(here),
                    lost=sum(name in nodes and nodes[name].lost for name in one.names),
                    idle_since_s=one.idle_since_s,
                )
            )
        return found

    def judge(self, nodes: Container[NodeName]) -> list[tuple[Lent, bool]]:
        """Return the allocations of which it is new that a node has joined (True), or that none ever will (False)."""
        found = []
        for one in self.lent.values():
            one.came = one.came or any(name in nodes for name in one.names)
            failed = one.over and bool(one.job.hosts) and not one.returned
            if not one.judged and (one.came or failed):
                one.judged = True
                found.append((one, one.came))
        return found

    def by_number(self, numbers: Sequence[str]) -> list[Lent]:
        return [one for one in self.lent.values() if one.job.number in numbers and not one.over]

    def gone(self, connected: frozenset[NodeName], now_s: float) -> list[Lent]:
        """Return allocations that are over, and with whose nodes there is no connection."""
        found = []
        for one in self.lent.values():
            if not one.over_s or not one.sure:
                continue
            if connected.intersection(one.names):
                one.silent_s = 0.0
                continue
            one.silent_s = one.silent_s or now_s
            if one.job.stage == "ended" and (now_s - one.silent_s >= SILENT_S or not one.job.hosts):
                found.append(one)
        return found

    def forget(self, one: Lent) -> None:
        self.lent.pop(one.job.key, None)
