"""The refusal of what no set of known nodes could hold, in words: of its pool alone, with what would fit instead."""

from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from penstock.core.model.ask_text import gang_text, host_parts, replica_text
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.errors import Problem
from penstock.core.model.jobs import GangAsk, JobSpec, RequestClass
from penstock.core.model.quantities import format_size, listed
from penstock.core.model.refused import refused_text
from penstock.core.model.resources import EXTENDED_SHORT, Resources
from penstock.core.model.words import counted
from penstock.core.place import mig
from penstock.core.place.capacity import shape_of
from penstock.core.place.fit import HOST_REASONS
from penstock.core.place.gang import replicas_possible, roomiest
from penstock.core.place.index import ClusterIndex
from penstock.core.place.isolation import isolation_offered
from penstock.core.state.state import State

POOLS_TRIED_MAX = 8
"""Other pools that are looked at for a hint."""
_FIELDS = {"cpu_short": "cpus", "memory_short": "memory", "storage_short": "storage", "bandwidth_short": "bandwidth",
           "extended_short": "extended", "label": "node_labels", "taint": "tolerations"}  # fmt: skip
"""The field of a job that asked for what is short; `devices` otherwise."""
_AMOUNTS = (*HOST_REASONS.values(), "devices_too_few", "share_short", "profile_short")
_FILTERS = ("vendor", "model", "device_memory", "capability")
_GIVEN = {
    "none": "whole devices only",
    "mig": "whole devices and MIG instances, no fractions",
    "time_slicing": "whole devices and fractions, no MIG instances",
    "mps": "whole devices and fractions, no MIG instances",
}


def never_fits(
    state: State, empty: ClusterIndex, spec: JobSpec, prefix: str, refused: Sequence[tuple[str, int]], *, hinted: bool
) -> Problem:
    """Return the refusal of `spec`.

    Args:
        empty: every known node as if it held nothing.
        refused: why these nodes refuse it, as `place_gang` counts them.
        hinted: without what would fit instead, which takes a look at all nodes: another problem of the request has it.
    """
    ask = spec.ask
    own = [(code, nodes) for code, nodes in refused if code not in ("pool", "no_nodes")]
    if not own:
        field, text = "pool", f"pool '{ask.pool}' has no nodes"
    elif any(code == "gang_short" for code, _ in own):
        field, text = _together(ask, empty)
    else:
        field = _FIELDS.get(own[0][0].partition(":")[0], "devices")
        what = "the groups of this job" if ask.others else "one replica" if ask.replicas > 1 else "this job"
        asked = gang_text(ask) if ask.others else replica_text(ask.each)
        text = f"no node of pool '{ask.pool}' can hold {what} ({asked}), even when empty: "
        text += refused_text(own, emptied=True)
    hints = () if hinted else _hints(state, empty, spec, [code for code, _ in own], field)
    return Problem("never_fits", prefix + field, text, gang_text(ask), "; ".join(hints))


def _hints(state: State, empty: ClusterIndex, spec: JobSpec, codes: Sequence[str], field: str) -> Iterator[str]:
    """Yield what would fit instead."""
    yield from _remedies(state, spec.ask, codes)
    if field == "topology" and _fits_without(spec.ask, empty):
        yield "with another `topology`, or none, it would fit"
    others = [f"'{name}'" for name in _other_pools(state, empty, spec)]
    if others:
        yield f"pool {listed(others)} could hold it"


def _together(ask: GangAsk, empty: ClusterIndex) -> tuple[str, str]:
    """Return field and text of a gang of which replicas fit, but not all of them together."""
    wish, wanted = ask.topology, gang_text(ask)
    if ask.others:
        return "groups", f"pool '{ask.pool}' cannot hold {wanted} together, even when empty"
    if wish is None or not wish.required:
        possible = replicas_possible(ask, empty)
        return "replicas", f"pool '{ask.pool}' cannot hold {wanted}, even when empty: {possible} fit at most"
    if wish.scope == "spread":
        possible = replicas_possible(ask, empty)
        text = f"pool '{ask.pool}' cannot hold {wanted}, each on a node of its own (topology: spread), even when empty"
        return "topology", f"{text}: {counted(possible, 'node')} can hold one"
    name, room = roomiest(ask, empty)
    text = f"no {wish.scope} of pool '{ask.pool}' can hold {wanted} (topology: {wish.scope}), even when empty: "
    if room:
        return "topology", text + f"{name}, the largest, holds {room}"
    return "topology", f"no node of pool '{ask.pool}' that could hold {wanted} declares its {wish.scope}"


def _fits_without(ask: GangAsk, empty: ClusterIndex) -> bool:
    return not ask.others and replicas_possible(replace(ask, topology=None), empty) == ask.replicas


def _remedies(state: State, ask: GangAsk, codes: Sequence[str]) -> Iterator[str]:
    """Yield what the pool has instead, for each kind of reason once."""
    specs = [node.spec for node in state.nodes.values() if node.spec.pool == ask.pool]
    short = next((code for code in codes if code in _AMOUNTS or code.startswith(EXTENDED_SHORT)), "")
    if short:
        yield f"the largest node of pool '{ask.pool}' is {_largest(specs, ask, short)}"
    if any(code in _FILTERS for code in codes):
        models = {f"{d.model} of {d.vendor} ({format_size(d.memory_bytes)})" for one in specs for d in one.devices}
        yield f"devices of pool '{ask.pool}': {listed(sorted(models))}"
    if "label" in codes:
        labels = sorted({f"{name}={value}" for one in specs for name, value in one.labels})
        yield f"labels of its nodes: {listed(labels)}" if labels else "its nodes have no labels"
    if "taint" in codes:
        yield f"taints of its nodes: {listed(sorted({str(taint) for one in specs for taint in one.taints}))}"
    if "virtualization" in codes:
        given = next((one.virtualization for one in state.config.pools if one.name == ask.pool), "any")
        yield f"pool '{ask.pool}' gives out {_GIVEN.get(given, given)}"
    if "isolation" in codes:
        yield isolation_offered(ask, (shape_of(n, state.config.sharing) for n in state.nodes.values()))
    if "profile" in codes or "mig_mode" in codes:
        yield _profiles(specs, ask.pool)
    if "device_links" in codes:
        yield "a farther `link` may fit"


def _largest(specs: Sequence[NodeSpec], ask: GangAsk, code: str) -> str:
    """Return the node with most of what is short, with the amounts that were asked for."""
    short = next((field for field, reason in HOST_REASONS.items() if reason == code), "")
    extended = code.partition(":")[2]

    def size(spec: NodeSpec) -> tuple[int, int, int, int]:
        has = spec.capacity
        most = has.of(extended) if extended else getattr(has, short) if short else 0
        return most, len(spec.devices), has.cpu_milli, has.memory_bytes

    best = max(specs, key=size)
    wanted, has = ask.each.host, best.capacity
    parts = [counted(len(best.devices), "device")] if ask.each.devices is not None else []
    parts += host_parts(
        Resources(
            has.cpu_milli if wanted.cpu_milli else 0,
            has.memory_bytes if wanted.memory_bytes else 0,
            has.storage_bytes if wanted.storage_bytes else 0,
            has.bandwidth_bps if wanted.bandwidth_bps else 0,
        )
    )
    parts += [f"{has.of(name)} x {name}" for name, _ in wanted.extended if name == extended]
    return f"{best.name}, with {', '.join(parts)}" if parts else str(best.name)


def _profiles(specs: Sequence[NodeSpec], pool: str) -> str:
    divided = {(d.model, d.memory_bytes) for one in specs for d in one.devices if d.mig}
    if not divided:
        return f"no device of pool '{pool}' is declared as one that may be cut into MIG instances"
    found = [geometry for one in sorted(divided) if (geometry := mig.geometry_of(*one)) is not None]
    names = dict.fromkeys(profile.name for geometry in found for profile in geometry.profiles)
    return f"its devices offer the profiles {listed(names, 12)}" if names else "its devices offer no MIG profiles"


def _other_pools(state: State, empty: ClusterIndex, spec: JobSpec) -> Iterator[str]:
    """Yield pools that could hold the job, within the maxima of its queues and its tenant.

    Gangs of several groups are left out: only placing them would tell, and a refusal places nothing more.
    """
    tree = state.empty_tree()
    account = tree.account(spec.queue, spec.tenant)
    if account is None or spec.ask.others:
        return
    for pool in islice((one for one in state.config.pools if one.name != spec.ask.pool), POOLS_TRIED_MAX):
        ask = replace(spec.ask, pool=pool.name)
        demand = tree.demand(RequestClass(spec.queue, spec.tenant, spec.priority, ask))
        if tree.exceeded(account, demand) is None and replicas_possible(ask, empty) == ask.replicas:
            yield pool.name
