"""Nodes that fail repeatedly: counted, closed for new work, opened again once they pass a check.

Only what speaks against the node counts: that it was lost, that it could not start a program, that a program met an
error of its devices or disks. A program that fails alone says nothing about the node where it ran.

Theory. There are two kinds of strikes. The node's own word is what its agent or the server saw: it was lost, could not
start a program, failed a check. A claim is what a program printed, and any program can print anything. So a claim
closes nothing for those who did not make it. It leads to a check of the node, beside the jobs there, and a check that
passes clears all claims. Until then

- claims of one tenant shut the node to that tenant: its further work is placed elsewhere;
- claims of at least two tenants and two users close it for everybody, as the node's own words do;
- where one tenant is all there is, those of two users close it; where that tenant has a single user, who could only
  harm themselves, those of two of their jobs.

A check that fails is the node's own word, and closes it. A check that does not end only counts as a strike: a job that
keeps a disk busy could cause that. A tenant's effect is bounded: claims on a node, nodes shut to it, and how often its
claims have nodes checked.
"""

from collections.abc import Sequence

from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model.cluster import (
    AGENT,
    CHECKED_BY,
    SHUT_TO_MAX,
    STRIKES_KEPT,
    ClusterConfig,
    Node,
    Settings,
    Strike,
)
from penstock.core.model.events import NodeChecked, NodeDrainChanged, NodeShut, NodeStruck
from penstock.core.model.ids import NodeName, TenantName
from penstock.core.model.jobs import Job
from penstock.core.model.node_faults import Fault
from penstock.core.model.quantities import format_duration
from penstock.core.state.state import State

ONE_INCIDENT_MS = 10_000
"""Failures of a node within this time count as one incident."""
JOBS_LEAST = 2
"""Jobs that must have failed there, unless the node was lost: of one alone, the job is the likely cause."""
CLOSED_SHARE = 2
"""Never close more than half of a pool: a fault common to all nodes is not the nodes' fault."""
LAST_FAILURE = ", the last: "
"""What follows it, in the reason why a node was closed, may be a line that a job printed."""
FAILED_CHECK = "it failed its check: "
CHECK_FIRST_MS = 60_000
CHECK_MOST_MS = 3_600_000
CLAIM_CHECK_EVERY_MS = 300_000
"""An open node is checked this often at most, however many claims there are."""
TENANT_CHECK_EVERY_MS = 60_000
"""Claims of one tenant have a node checked this often at most, whichever it is."""
STRIKE_MAX_CHARS = 200


def strike(tx: Transaction, name: NodeName, fault: Fault, job: Job | None = None) -> None:
    """Count something against a node; close it, or shut it to a tenant, when that has happened too often."""
    settings = tx.state.config.settings
    node = tx.state.nodes.get(name)
    if not settings.node_strikes_max or node is None or _is_known(node, fault, tx.now_ms):
        return
    own = fault.own or job is None
    if not _is_said(node, settings, tx.now_ms, own=own, job=job):
        text = fault.text[:STRIKE_MAX_CHARS]
        about = (None, own) if job is None else (job.id, own, job.spec.tenant, job.user)
        tx.emit(NodeStruck(name, text, *about))
        node = tx.state.nodes[name]
    if node.draining:
        return
    recent = recent_strikes(node, settings, tx.now_ms)
    found = for_everybody(tx.state.config, recent)
    if enough(found, settings):
        if _may_close(tx.state, node):
            tx.emit(NodeDrainChanged(name, True, CHECKED_BY, _reason(found, fault.text)))
    elif job is not None and not own:
        _shut(tx, node, job.spec.tenant, [s for s in recent if _is_claim_of(s, job.spec.tenant)], fault.text)


def _is_known(node: Node, fault: Fault, now_ms: int) -> bool:
    """Return whether this incident was counted already. No claim hides the node's own word."""
    others = (s for s in reversed(node.strikes) if s.own or not fault.own)
    last = next(others, None)
    return last is not None and now_ms - last.time_ms < ONE_INCIDENT_MS


def _is_said(node: Node, settings: Settings, now_ms: int, *, own: bool, job: Job | None) -> bool:
    """Return whether the log has enough strikes of this kind: more would add nothing."""
    recent = recent_strikes(node, settings, now_ms)
    if own or job is None:
        return sum(s.own for s in recent) >= STRIKES_KEPT
    jobs = {s.job_id for s in recent if _is_claim_of(s, job.spec.tenant)}
    count = sum(_is_claim_of(s, job.spec.tenant) for s in recent)
    return count >= settings.node_strikes_max and (job.id in jobs or len(jobs) >= JOBS_LEAST)


def _is_claim_of(one: Strike, tenant: TenantName) -> bool:
    return not one.own and one.tenant == tenant


def recent_strikes(node: Node, settings: Settings, now_ms: int) -> list[Strike]:
    """Return the strikes that count against a node now; older ones have expired."""
    return [one for one in node.strikes if now_ms - one.time_ms <= settings.node_strikes_window_ms]


def for_everybody(config: ClusterConfig, strikes: Sequence[Strike]) -> list[Strike]:
    """Return the strikes that may close a node for all: the node's own words, and claims where several agree."""
    claims = [one for one in strikes if not one.own]
    if _agree(config, claims):
        return list(strikes)
    return [one for one in strikes if one.own]


def _agree(config: ClusterConfig, claims: Sequence[Strike]) -> bool:
    """Return whether claims come from several tenants and users: one alone cannot close a node for the others."""
    tenants, users = {one.tenant for one in claims}, {one.user for one in claims}
    if TenantName("") in tenants:
        return False  # of a log that does not say whose they are
    if len(config.tenants) > 1:
        return len(tenants) > 1 and len(users) > 1
    people = {user.name for user in config.users} | users
    return len(people) == 1 or len(users) > 1


def enough(strikes: Sequence[Strike], settings: Settings) -> bool:
    """Return whether these failures close a node: enough of them, of several jobs or of the node as a whole."""
    jobs = {one.job_id for one in strikes}
    return len(strikes) >= settings.node_strikes_max and (None in jobs or len(jobs) >= JOBS_LEAST)


def _reason(strikes: Sequence[Strike], text: str) -> str:
    within = format_duration(max(1_000, strikes[-1].time_ms - strikes[0].time_ms))
    return f"{len(strikes)} failures within {within}{LAST_FAILURE}{text[:STRIKE_MAX_CHARS]}"


def _may_close(state: State, node: Node, tenant: TenantName | None = None) -> bool:
    """Return whether at least half of the pool's nodes stay open; with `tenant`, to its work."""
    pool = [one for one in state.nodes.values() if one.spec.pool == node.spec.pool]
    closed = sum((one.draining and one.closed_by == CHECKED_BY) or tenant in one.shut_to for one in pool)
    return closed + 1 <= max(1, len(pool) // CLOSED_SHARE)


def _shut(tx: Transaction, node: Node, tenant: TenantName, claims: Sequence[Strike], text: str) -> None:
    """Shut a node to the one tenant whose claims are many enough, where there are others."""
    if len(tx.state.config.tenants) < 2 or tenant in node.shut_to or len(node.shut_to) >= SHUT_TO_MAX:
        return
    if enough(claims, tx.state.config.settings) and _may_close(tx.state, node, tenant):
        tx.emit(NodeShut(node.spec.name, tenant, _reason(claims, text)))


def on_disk(tx: Transaction, name: NodeName, problem: str, *, inventory: bool) -> None:
    """Close a node whose disk takes nothing, however many of its pool are: what would start there would fail. Open it
    once its agent says so; what a person or its failures have closed stays as it is.
    """
    node = tx.state.nodes[name]
    if problem and not node.draining:
        tx.emit(NodeDrainChanged(name, True, AGENT, problem[:STRIKE_MAX_CHARS]))
    elif not problem and inventory and node.draining and node.closed_by == AGENT:
        tx.emit(NodeDrainChanged(name, False, AGENT, "its disk has room again"))


# Checks.


def check_due_ms(node: Node) -> int | None:
    """Return when a node that was closed for its failures may be checked (unix ms); None for any other.

    At once the first time; then it waits longer with each time that it was closed.
    """
    if not node.draining or node.closed_by != CHECKED_BY or node.state != "ready":
        return None
    again = node.closures - 1 + node.checks_failed
    wait_ms = min(CHECK_MOST_MS, CHECK_FIRST_MS * 2 ** min(again - 1, 12)) if again > 0 else 0
    return node.closed_ms + wait_ms


def claim_check_due_ms(node: Node) -> int | None:
    """Return when an open node may be checked for the claims on it (unix ms); None where there are none."""
    if node.draining or node.state != "ready":
        return None
    first_ms = min((time_ms for time_ms, _ in _claims_to_check(node)), default=None)
    if first_ms is None:
        return None
    return max(first_ms, node.checked_ms + CLAIM_CHECK_EVERY_MS) if node.checked_ms else first_ms


def _claims_to_check(node: Node) -> list[tuple[int, TenantName]]:
    """Return when claims were made, and whose; a node stays shut also when they are forgotten for newer strikes."""
    claims = [(one.time_ms, one.tenant) for one in node.strikes if not one.own]
    known = {tenant for _, tenant in claims}
    return claims + [(node.checked_ms, tenant) for tenant in node.shut_to if tenant not in known]


def nodes_to_check(state: State, now_ms: int) -> list[NodeName]:
    """Return the nodes that are to be checked now; of open ones at most one for the claims of each tenant."""
    found, claimed = [], []
    last_ms: dict[TenantName, int] = {}
    for name, node in state.nodes.items():
        for tenant in node.checked_for:
            last_ms[tenant] = max(last_ms.get(tenant, 0), node.checked_ms)
        closed_due_ms = check_due_ms(node) if node.draining else None
        if closed_due_ms is not None and closed_due_ms <= now_ms:
            found.append(name)
        due_ms = claim_check_due_ms(node) if node.strikes or node.shut_to else None
        if due_ms is not None and due_ms <= now_ms:
            claimed += [(time_ms, name, tenant) for time_ms, tenant in _claims_to_check(node)]
    chosen: dict[TenantName, NodeName] = {}
    for _, name, tenant in sorted(claimed):
        if tenant not in last_ms or now_ms - last_ms[tenant] >= TENANT_CHECK_EVERY_MS:
            chosen.setdefault(tenant, name)
    return [*found, *sorted(set(chosen.values()))]


def checked(tx: Transaction, name: NodeName, text: str, *, passed: bool, ended: bool = True) -> None:
    """Apply the result of a node's check: the node opens, or is cleared of claims; or it is closed, or stays so.

    Args:
        ended: whether the check came to an end: an unfinished check says little about an open node.
    """
    node = tx.state.nodes.get(name)
    if node is None:
        return
    if check_due_ms(node) is not None:
        why = "it passed its check" if passed else FAILED_CHECK + text
        tx.emit(NodeDrainChanged(name, not passed, CHECKED_BY, why))
        return
    due_ms = claim_check_due_ms(node)
    if due_ms is None or tx.now_ms < due_ms:
        return  # no check was due
    tx.emit(NodeChecked(name, passed, "" if passed else text))
    if passed:
        return
    why = FAILED_CHECK + text
    strike(tx, name, Fault(why))
    node = tx.state.nodes[name]
    if ended and not node.draining and _may_close(tx.state, node):
        tx.emit(NodeDrainChanged(name, True, CHECKED_BY, why))
