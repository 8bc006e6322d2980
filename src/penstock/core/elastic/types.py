"""Which device type each job gets, when jobs accept several and run at different speeds on them.

A job alone takes its best throughput per cost. Among several that want the same type comparative advantage decides:
the job that loses least elsewhere moves. The optimum is found by cancelling cycles between types, which needs no
solver. Heterogeneity-aware allocation X[job, type]: Narayanan et al., Gavel, OSDI 2020.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

Order = Literal["fifo", "las"]
SERVICE_STEP_MS = 3_600_000
"""Attained service below this is one class; each further class is twice as wide."""


class TypedJob(msgspec.Struct, frozen=True):
    """A job that runs on `devices` devices of one type."""

    id: int
    speeds: Mapping[str, int]
    """Measured or declared speed on each type that it accepts: any unit, integers above 0."""
    devices: int = 1
    held: str = ""
    """Its present type."""
    submitted_ms: int = 0
    service_ms: int = 0
    """Attained service in device-milliseconds, weighted by speed (see `service_of`)."""
    rest_ms: int = 0
    """Expected rest of its run on its present type; without a better estimate the time it has run."""
    restart_cost_ms: int = 30_000


def choose_type(speeds: Mapping[str, int], prices: Mapping[str, int], free: Iterable[str]) -> str | None:
    """Return the free type with the best speed per price, or None when the job accepts none of them.

    Args:
        speeds: by type, any unit. prices: by type, any unit; a type without one costs 1.
    Equal ones fall to the faster, then to the lower name.
    """
    usable = [t for t in sorted(set(free)) if speeds.get(t, 0) > 0]
    if not usable:
        return None
    best = usable[0]
    for other in usable[1:]:
        one, two = speeds[best] * _price(prices, other), speeds[other] * _price(prices, best)
        if (two, speeds[other]) > (one, speeds[best]):
            best = other
    return best


def service_of(ran_ms: int, speed: int, speeds: Mapping[str, int]) -> int:
    """Return the service of `ran_ms` on a type: an hour at half of the job's best speed is half an hour."""
    return ran_ms * speed // max(speeds.values())


def in_order(jobs: Iterable[TypedJob], order: Order) -> list[TypedJob]:
    """Return the jobs in order: by submit time, or by attained service in classes that double in width.

    Classes keep jobs of like service from taking turns at every round. Source: Tiresias, NSDI 2019.
    """
    if order == "fifo":
        return sorted(jobs, key=lambda j: (j.submitted_ms, j.id))
    return sorted(jobs, key=lambda j: ((j.service_ms // SERVICE_STEP_MS).bit_length(), j.submitted_ms, j.id))


def assign_types(
    jobs: Iterable[TypedJob],
    capacity: Mapping[str, int],
    order: Order = "fifo",
    prices: Mapping[str, int] | None = None,
) -> dict[int, str]:
    """Return the type of each job that gets devices now; the others wait.

    Args:
        jobs: running and waiting ones, any order; ids differ.
        capacity: devices by type that these jobs may use, including devices that they hold.
    Jobs are admitted in `order` while devices last. Among those admitted the sum of (speed per price, against the
    job's own best) is largest; running elsewhere than now counts for less, by its restart. With jobs of one size
    this is the exact optimum, else no cycle of like-sized jobs improves it.
    """
    ordered = in_order(jobs, order)
    room = {t: count for t, count in sorted(capacity.items()) if count > 0}
    values = {job.id: _values(job, room, prices or {}) for job in ordered}
    found: dict[int, str] = {}
    admitted: dict[int, TypedJob] = {}
    for job in ordered:
        _admit(job, admitted, found, room, values)
    while _improve(admitted, found, room, values):
        pass
    return found


def _price(prices: Mapping[str, int], device_type: str) -> int:
    return max(1, prices.get(device_type, 1))


def _values(job: TypedJob, types: Iterable[str], prices: Mapping[str, int]) -> dict[str, int]:
    """Return the value of each usable type for the job: 1,000,000 for its best; its present type needs no restart."""
    rates = {t: job.speeds[t] * 10**9 // _price(prices, t) for t in types if job.speeds.get(t, 0) > 0}
    best = max(rates.values(), default=1)
    worth = {}
    for device_type, rate in rates.items():
        full = 1_000_000 * rate // best
        if job.held and device_type != job.held:
            full = full * job.rest_ms // (job.rest_ms + job.restart_cost_ms)
        worth[device_type] = full
    return worth


def _admit(
    job: TypedJob,
    admitted: dict[int, TypedJob],
    found: dict[int, str],
    room: dict[str, int],
    values: Mapping[int, Mapping[str, int]],
) -> None:
    """Give `job` devices: of its best free type, or after others of its size have moved along a path."""
    worth = values[job.id]
    free = [t for t in worth if room[t] >= job.devices]
    if free:
        chosen = max(free, key=lambda t: (worth[t], t == job.held))
        admitted[job.id], found[job.id] = job, chosen
        room[chosen] -= job.devices
        return
    path = _path_to_room(job, admitted, found, room, values)
    if path:
        for mover, device_type in path:
            found[mover] = device_type
        admitted[job.id] = job
        room[path[-1][1]] -= job.devices


def _path_to_room(
    job: TypedJob,
    admitted: Mapping[int, TypedJob],
    found: Mapping[int, str],
    room: Mapping[str, int],
    values: Mapping[int, Mapping[str, int]],
) -> list[tuple[int, str]]:
    """Return moves (job, type) that end at a type with room: an augmenting path, breadth first."""
    paths = {t: [(job.id, t)] for t in values[job.id]}
    waiting = sorted(paths)
    while waiting:
        here = waiting.pop(0)
        if room[here] >= job.devices:
            return paths[here]
        for number, device_type in sorted(found.items()):
            if device_type == here and admitted[number].devices == job.devices:
                for there in values[number]:
                    if there not in paths:
                        paths[there] = [*paths[here], (number, there)]
                        waiting.append(there)
    return []


def _improve(
    admitted: Mapping[int, TypedJob],
    found: dict[int, str],
    room: dict[str, int],
    values: Mapping[int, Mapping[str, int]],
) -> bool:
    """Cancel one cycle of moves between types that gains; False when there is none left (Klein 1967)."""
    for devices in sorted({job.devices for job in admitted.values()}):
        moves: dict[tuple[str, str], tuple[int, int]] = {}
        for number in sorted(found):
            if admitted[number].devices != devices:
                continue
            here = found[number]
            for there, worth in values[number].items():
                gain = worth - values[number][here]
                if there != here and gain > moves.get((here, there), (gain - 1, 0))[0]:
                    moves[here, there] = (gain, number)
        cycle = _gaining_cycle(moves, [t for t, left in room.items() if left >= devices])
        if cycle:
            for here, there in cycle:
                found[moves[here, there][1]] = there
            room[cycle[0][0]] += devices
            room[cycle[-1][1]] -= devices
            return True
    return False


def _gaining_cycle(
    moves: Mapping[tuple[str, str], tuple[int, int]], open_types: Sequence[str]
) -> list[tuple[str, str]]:
    """Return moves of positive total gain that close a cycle, or end at a type with room; [] when there are none.

    Best simple walks of growing length from each type: exact for the handful of types that a pool has (compared with
    the linear program in the tests), a local optimum for more.
    """
    types = sorted({t for move in moves for t in move})
    for start in types:
        walks: dict[str, tuple[int, list[tuple[str, str]]]] = {start: (0, [])}
        for _ in types:
            longer = dict(walks)
            for (here, there), (gain, _) in sorted(moves.items()):
                if here not in walks or any(here == move[0] for move in walks[here][1]):
                    continue
                total, path = walks[here][0] + gain, [*walks[here][1], (here, there)]
                if there == start:
                    if total > 0:
                        return path
                elif all(there not in move for move in walks[here][1]) and total > longer.get(there, (total - 1,))[0]:
                    longer[there] = (total, path)
            walks = longer
        ends = [(walks[t][0], t) for t in open_types if t in walks and walks[t][0] > 0]
        if ends:
            return walks[max(ends)[1]][1]
    return []
