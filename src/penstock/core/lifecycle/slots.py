"""The share of jobs that ask for a slice of a device: one of the equal parts into which their pool divides it.

It is worked out once, at the submit: a pool that divides its devices otherwise later changes no job.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.core.messages.requests import NewJob
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.errors import Problem
from penstock.core.model.jobs import GangAsk, JobSpec
from penstock.core.model.quantities import listed
from penstock.core.model.resources import WHOLE_DEVICE_MILLI, ReplicaAsk


def with_slots(entries: Sequence[NewJob], config: ClusterConfig) -> tuple[tuple[NewJob, ...], list[Problem]]:
    """Return the jobs with their shares, and a problem for each shape whose pool gives out no slices."""
    known: dict[int, JobSpec] = {}
    problems: list[Problem] = []
    found = []
    for entry in entries:
        if not any(_asks(ask) for ask in (entry.spec.ask, *entry.spec.alternatives)):
            found.append(entry)
            continue
        spec = known.get(id(entry.spec))  # entries alike may share their spec
        if spec is None:
            spec = known[id(entry.spec)] = _spec(entry, config, problems)
        found.append(replace(entry, spec=spec))
    return tuple(found), problems


def _asks(ask: GangAsk) -> bool:
    return any(each.devices is not None and each.devices.slot for each in _each_of(ask))


def _each_of(ask: GangAsk) -> tuple[ReplicaAsk, ...]:
    return (ask.each, *(group.each for group in ask.others))


def _spec(entry: NewJob, config: ClusterConfig, problems: list[Problem]) -> JobSpec:
    spec, prefix = entry.spec, f"{entry.field}." if entry.field else ""
    paths = ["", *(f"alternatives[{number}]." for number in range(len(spec.alternatives)))]
    for path, ask in zip(paths, (spec.ask, *spec.alternatives), strict=True):
        pool = config.pool_by_name.get(ask.pool)
        if _asks(ask) and pool is not None and not pool.replicas_per_device:
            names = [one.name for one in config.pools if one.replicas_per_device]
            text = f"pool '{ask.pool}' divides no device into slices"
            hint = f"say which part, such as share: 0.25; pools that do: {listed(names) or 'none'}"
            problems.append(Problem("bad_value", f"{prefix}{path}devices.share", text, "slice", hint))
    return replace(
        spec,
        ask=_gang(spec.ask, config),
        alternatives=tuple(_gang(ask, config) for ask in spec.alternatives),
    )


def _gang(ask: GangAsk, config: ClusterConfig) -> GangAsk:
    pool = config.pool_by_name.get(ask.pool)
    parts = pool.replicas_per_device if pool is not None else 0
    others = tuple(replace(group, each=_replica(group.each, parts)) for group in ask.others)
    return replace(ask, each=_replica(ask.each, parts), others=others)


def _replica(each: ReplicaAsk, parts: int) -> ReplicaAsk:
    if each.devices is None or not each.devices.slot:
        return each
    # Of one part there is nothing to share: the whole device.
    return replace(each, devices=replace(each.devices, share_milli=WHOLE_DEVICE_MILLI // max(1, parts), slot=False))
