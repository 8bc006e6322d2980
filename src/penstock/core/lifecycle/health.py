"""Nodes that fail again and again: counted, closed for new work, opened again once they pass a check.

Only what speaks against the node counts: that it was lost, that it could not start a program, that a program met an
error of its devices or disks. A program that fails by itself says nothing about where it ran.
"""

import re

from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model.cluster import CHECKED_BY, Node
from penstock.core.model.events import NodeDrainChanged, NodeStruck
from penstock.core.model.ids import JobId, NodeName
from penstock.core.model.jobs import ExitInfo
from penstock.core.units import format_duration

_NODE_FAULT = re.compile(
    r"uncorrectable ECC|fallen off the bus|NVML|\bXid\b|CUDA driver|hardware error|Input/output error"
    r"|Stale file handle",
    re.IGNORECASE,
)
_OWN_FAULT = re.compile(r"\[Errno (2|7|8|13|20|36|40)\]|rendezvous port|lost touch with the server|was shut down")
"""No such file, too long a list, not allowed: what was asked for, not where; or what is counted elsewhere."""
ONE_INCIDENT_MS = 10_000
"""What happens to a node within this time has one cause."""
JOBS_LEAST = 2
"""So many different jobs must have met it, or the node itself was lost: one job alone speaks against itself."""
CLOSED_SHARE = 2
"""No more than every second node of a pool is closed by itself: what strikes all of them is not theirs."""
LAST_FAILURE = ", the last: "
"""What follows it, in the reason why a node was closed, may be a line that a job printed."""
SHUT_DOWN = "its node was shut down"
CHECK_FIRST_MS = 60_000
CHECK_MOST_MS = 3_600_000


def fault_of(info: ExitInfo) -> str:
    """Return what of an exit speaks against the node, or ''."""
    if info.stop_sent or _OWN_FAULT.search(info.problem):
        return ""
    return info.problem or (info.note if _NODE_FAULT.search(info.note) else "")


def strike(tx: Transaction, name: NodeName, text: str, job_id: JobId | None = None) -> None:
    """Count something against a node; close it when that has happened too often."""
    settings = tx.state.config.settings
    node = tx.state.nodes.get(name)
    if not settings.node_strikes_max or node is None:
        return
    if node.strikes and tx.now_ms - node.strikes[-1].time_ms < ONE_INCIDENT_MS:
        return
    tx.emit(NodeStruck(name, text, job_id))
    node = tx.state.nodes[name]
    recent = [one for one in node.strikes if tx.now_ms - one.time_ms <= settings.node_strikes_window_ms]
    lost = any(one.job_id is None for one in recent)
    enough = len(recent) >= settings.node_strikes_max and (lost or len({one.job_id for one in recent}) >= JOBS_LEAST)
    if enough and not node.draining and _may_close(tx, node):
        within = format_duration(max(1_000, recent[-1].time_ms - recent[0].time_ms))
        reason = f"{len(recent)} failures within {within}{LAST_FAILURE}{text}"
        tx.emit(NodeDrainChanged(name, True, CHECKED_BY, reason))


def _may_close(tx: Transaction, node: Node) -> bool:
    pool = [one for one in tx.state.nodes.values() if one.spec.pool == node.spec.pool]
    closed = sum(one.draining and one.closed_by == CHECKED_BY for one in pool)
    return closed + 1 <= max(1, len(pool) // CLOSED_SHARE)


def check_due_ms(node: Node) -> int | None:
    """Return when a node that was closed for its failures may be checked (unix ms); None for any other.

    At once the first time; then it waits longer with each time that it was closed.
    """
    if not node.draining or node.closed_by != CHECKED_BY or node.state != "ready":
        return None
    again = node.closures - 1 + node.checks_failed
    wait_ms = min(CHECK_MOST_MS, CHECK_FIRST_MS * 2 ** min(again - 1, 12)) if again > 0 else 0
    return node.closed_ms + wait_ms


def checked(tx: Transaction, name: NodeName, text: str, *, passed: bool) -> None:
    """Open a node again that passed its check; a failed one is noted, and it stays closed."""
    node = tx.state.nodes.get(name)
    if node is None or check_due_ms(node) is None:
        return
    if passed:
        tx.emit(NodeDrainChanged(name, False, CHECKED_BY, "it passed its check"))
    else:
        tx.emit(NodeDrainChanged(name, True, CHECKED_BY, f"it failed its check: {text}"))
