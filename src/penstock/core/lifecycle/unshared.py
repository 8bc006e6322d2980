"""Whether all nodes that a job may run on reach what it saves: said at submit, not after the first loss of a node."""

from collections.abc import Callable, Iterable

from penstock.core.messages.requests import NewJob
from penstock.core.model.errors import Problem
from penstock.core.model.jobs import CheckpointSpec, GangAsk, JobSpec
from penstock.core.place.fit import capacity, needs_of
from penstock.core.place.index import ClusterIndex
from penstock.core.state.state import State

NAMED_MAX = 3
KNOWN_MAX = 10_000
WARNINGS_MAX = 10
"""Of one request."""
Cluster = Callable[[], ClusterIndex]
_DEFAULT = CheckpointSpec()


def saves(spec: JobSpec) -> bool:
    """Return whether a job looks like one that saves checkpoints: it says how, or is preemptible and has devices."""
    return spec.checkpoint != _DEFAULT or (spec.preemptible and not spec.lease and spec.ask.device_total > 0)


def not_shared(state: State, spec: JobSpec, prefix: str, cluster: Cluster) -> Problem | None:
    """Return the problem of a job that asks for shared storage, and could run on nodes that do not share one.

    Args:
        cluster: returns every known node as if it held nothing.
    """
    if not spec.checkpoint.shared or not (text := apart(state, spec.ask, cluster)):
        return None
    field = f"{prefix}checkpoint.shared"
    hint = "choose nodes that share storage by `node_labels` or `pool`; without `shared` it may have to start anew"
    return Problem("checkpoint_not_shared", field, f"{field} is true, but {text}", "true", hint)


def warnings_of(state: State, jobs: Iterable[NewJob], cluster: Cluster) -> tuple[str, ...]:
    """Return what is said of jobs of a request whose checkpoints some of their nodes would not reach.

    Args:
        cluster: returns every known node as if it held nothing.
    """
    found: list[str] = []
    seen: set[GangAsk] = set()
    for new in jobs:
        if new.spec.ask in seen or not saves(new.spec):
            continue
        seen.add(new.spec.ask)
        if text := apart(state, new.spec.ask, cluster):
            what = f"what job '{new.spec.name}' saves may be out of reach after the loss of a node: {text}. "
            found.append(what + "It goes on where that is reached, and anew once no such node has lived for 10 minutes")
        if len(seen) >= WARNINGS_MAX:
            break
    return tuple(found)


def apart(state: State, ask: GangAsk, cluster: Cluster) -> str:
    """Return how the nodes that could hold a replica are divided by storage; '' where all of them share one."""
    known = state.indexes.apart
    if None not in known:
        known[None] = "" if len({node.spec.storage for node in state.nodes.values()}) < 2 else "several"
    if not known[None]:
        return ""
    if ask not in known:
        if len(known) > KNOWN_MAX:
            known.clear()
            return apart(state, ask, cluster)
        known[ask] = _apart(ask, cluster())
    return known[ask]


def _apart(ask: GangAsk, cluster: ClusterIndex) -> str:
    nodes: dict[str, list[str]] = {}
    needs = [need for need, _ in needs_of(ask)]
    holds: dict[int, bool] = {}
    for number, at in enumerate(cluster.state_of):
        free = cluster.table.frees[at]
        if at not in holds:
            holds[at] = any(capacity(need, free, 1) for need in needs)
        if holds[at]:
            nodes.setdefault(free.shape.storage, []).append(str(cluster.names[number]))
    if len(nodes) < 2:
        return ""
    groups = sorted(nodes.values(), key=lambda names: (-len(names), names))
    said = "; ".join(_names(names) for names in groups[:NAMED_MAX])
    said += f"; and {len(groups) - NAMED_MAX} more" * (len(groups) > NAMED_MAX)
    count = sum(map(len, groups))
    return f"the {count} nodes that it may run on keep what jobs save on {len(groups)} storages ({said})"


def _names(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" * (len(names) > NAMED_MAX)
    return ", ".join(names[:NAMED_MAX]) + more
