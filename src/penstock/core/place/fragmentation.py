"""Scores nodes by how much accelerator capacity a placement would make useless for the requests seen lately.

Pure integer arithmetic on arrays: the same answer on every machine, for every node order and batch size. Free
capacity, typical requests, and the choice among several whole devices come from other modules.

Theory. Let `p_m` be the weight of request class `m` (only classes that ask for devices count), `g_m` the devices it
asks for (milli-devices), `c_m` and `s_m` its CPU and memory. For a node with free devices `f_d` (milli), CPU `c` and
memory `s`, what class `m` could still use of the node if only such requests came is

    usable_m = min(devices_m, c * g_m / c_m, s * g_m / s_m)
    devices_m = sum_d (f_d - w(f_d))               for classes of one device or a part of one
              = floor(whole devices free / k) * k  for classes of k > 1 whole devices

and the node's unusable capacity is F = sum_d f_d - sum_m p_m usable_m / sum_m p_m, over the classes that accept its
kind of device. A replica goes where it makes F grow least (or fall most).

`w(f)` is the expected unused rest of one device with `f` free, when requests arrive in the proportions of the mix,
each that fits is put there, and their number has STAGES stages, each of which ends with probability
1 / STAGE_OFFERS at each arrival. With w_0(f) = f, O = STAGE_OFFERS - 1, and w the last w_i:

    w_i(f) = (w_{i-1}(f) + O * sum_{m fits f} p_m w_i(f - g_m)) / (1 + O * sum_{m fits f} p_m)      for 0 < f < 1

with the p_m of all device classes adding up to 1, and only classes whose CPU the node still has counted as fitting.
A wholly free device is not wasted at all, w(1) = 0, for every mix: every new kind of request can use it, so a device
in parts is filled before another is cut.

Source: after FGD (Weng et al., Beware of Fragmentation, USENIX ATC 2023), which takes the same weighted mean, but of
what *one* request of each class could not use. That is blind to two losses: a device that only fits ever smaller
pieces (0.81 of a device taken: 0.19 is free, hardly ever wanted), and CPU that is enough for the next request, not for
the devices beyond it. It is also flat over most nodes, so its published figure depends on the order of node names.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]

WHOLE_MILLI = 1000
"""A whole device."""

MICRO = 1000
"""Micro-devices in a milli-device: the unit of F, so that the rounding of a division is below any real difference."""

STAGES, STAGE_OFFERS = 4, 12
"""A device is expected to be offered about 48 requests before its free part matters no more, in four stages of 12 so
that the number varies by half only: with one stage (a number that may as well be 0) devices would be kept equally full.

From 16 to 64 requests the result on the openb trace moves by 0.1 % of all devices. With 128, remainders look useful
because a fitting request comes at last, and where all requests are for parts of devices 0.8 % is lost.
"""

RANKS_MAX = 48
"""Limit of distinct CPU thresholds in w: it bounds the tables to 0.4 MB for a profile."""

WEIGHT_MAX = 1 << 32
"""Limit of the sum of weights: a sum over classes of weight x micro-devices stays below 2^63 up to 2,000 devices."""

RATE_SHIFT = 20
RATE_MAX = 1 << 38
HOST_MAX = 1 << 24
"""Fixed point of devices per CPU or memory. Host amounts are capped at 16,777 cores and 16 TiB, rates at a quarter of
a device for one milli-core or MiB, so that no product leaves 63 bits; neither cap can change which limit is binding
on a real node."""

NO_FIT = int(np.iinfo(np.int64).max)
"""The score of a node that the replica does not fit on."""

TIE_BITS = 20
TIE_PART_MAX = (1 << (TIE_BITS // 2)) - 1
"""Below the growth of F: devices left (in 8 milli, up to 8 devices), then CPU left (in 256 milli-cores)."""

CHUNK = 256
"""Nodes scored together: the tables of 256 nodes and 60 classes stay in a processor's second-level cache."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What one replica asks of a node: milli-cores, bytes, devices, and thousandths of each of them.

    `share_milli` below 1000 goes with `count` 1; `count` 0 asks for no device. `kinds[i]` says whether device kind
    `i` is accepted; None accepts every kind.
    """

    cpu_milli: int
    memory_bytes: int
    count: int
    share_milli: int
    kinds: tuple[bool, ...] | None = None


@dataclass(frozen=True, slots=True, order=True)
class WorkloadClass:
    """A typical request and how often it came: the fields of `Ask`, with `kinds` spelled out, and a weight."""

    cpu_milli: int
    memory_bytes: int
    count: int
    share_milli: int
    kinds: tuple[bool, ...]
    weight: int


@dataclass(frozen=True, slots=True)
class _Tables:
    """Tables computed once for a mix. P profiles are groups of device kinds that the same classes accept."""

    profile_of_kind: Ints  # [kinds + 2]: known kinds, then any later one, then (kind -1) nodes without devices
    ranks: int  # CPU ranks: 1 + number of `cpus`
    cpus: Ints  # ascending, milli-cores of the classes of one device
    wasted: Ints  # [P * ranks * 1001] w(f) in micro-devices
    cpu_rate: Ints  # [M] micro-devices << RATE_SHIFT for a milli-core; classes of one device come first
    memory_rate: Ints  # [M] the same for a MiB
    singles: int  # how many of the M classes are of one device
    multiples: Ints  # [M - singles] device counts of the others
    weights: Ints  # [P, M], 0 where the class does not accept the profile
    weight: Ints  # [P] their sum, at least 1


@dataclass(frozen=True)
class Mix:
    """The typical requests of a pool. Equal content is equal, has one hash, and may key a cache."""

    kinds: int
    classes: tuple[WorkloadClass, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.kinds, self.classes)))

    def __hash__(self) -> int:
        return self._hash

    @classmethod
    def of(cls, kinds: int, rows: Iterable[Sequence[Any]]) -> "Mix":
        """Return the mix of `rows`: (cpu_milli, memory_bytes, count, share_milli, kinds or None, weight).

        Equal classes are joined; order does not matter. Classes without devices are left out: they can use no device.
        Raises: ValueError for a negative amount or weight, a share outside 1..1000, a fractional class of more than
            one device, a mask of another length than `kinds`, or weights that add up to more than `WEIGHT_MAX`.
        """
        total: dict[tuple[int, int, int, int, tuple[bool, ...]], int] = {}
        for cpu, memory, count, share, mask, weight in rows:
            accepted = (True,) * kinds if mask is None else tuple(bool(x) for x in mask)
            _check(WorkloadClass(cpu, memory, count, share, accepted, weight), kinds)
            if count and weight:
                key = (int(cpu), int(memory), int(count), int(share), accepted)
                total[key] = total.get(key, 0) + int(weight)
        if sum(total.values()) > WEIGHT_MAX:
            raise ValueError(f"weights: sum {sum(total.values())}, at most {WEIGHT_MAX}")
        return cls(kinds, tuple(WorkloadClass(*key, weight) for key, weight in sorted(total.items())))

    @cached_property
    def tables(self) -> _Tables:
        """Lookup tables, made at first use: about 6 ms for 60 classes with shares that are multiples of 10."""
        return _tables(self)


def _check(one: WorkloadClass, kinds: int) -> None:
    if min(one.cpu_milli, one.memory_bytes, one.count, one.weight) < 0:
        raise ValueError(f"class {one}: expected no negative amount")
    if one.count and not 1 <= one.share_milli <= WHOLE_MILLI:
        raise ValueError(f"share_milli {one.share_milli}: expected 1..{WHOLE_MILLI}")
    if one.count > 1 and one.share_milli < WHOLE_MILLI:
        raise ValueError(f"share_milli {one.share_milli} of {one.count} devices: only of one")
    if len(one.kinds) != kinds:
        raise ValueError(f"kinds {one.kinds}: expected {kinds} entries")


def _tables(mix: Mix) -> _Tables:
    classes = sorted(mix.classes, key=lambda c: c.count > 1)
    masks = np.array([c.kinds for c in classes], dtype=bool).reshape(len(classes), mix.kinds)
    masks = np.column_stack((masks, masks.all(axis=1)))
    columns, profile = np.unique(masks, axis=1, return_inverse=True)
    weights = columns.T * np.array([c.weight for c in classes], dtype=np.int64)
    devices = np.array([c.count * c.share_milli * MICRO for c in classes], dtype=np.int64)
    cpu = np.array([c.cpu_milli for c in classes], dtype=np.int64)
    memory = np.array([-(-c.memory_bytes >> 20) for c in classes], dtype=np.int64)
    singles = sum(c.count == 1 for c in classes)
    shares = np.array([c.share_milli for c in classes[:singles]], dtype=np.int64)
    cpus = _ranks(cpu[:singles], np.array([c.weight for c in classes[:singles]], dtype=np.int64))
    total = sum(c.weight for c in classes)
    # Classes of the same proportions can use the same of any node: they are one column, with their weights together.
    cpu_rate = np.minimum((devices << RATE_SHIFT) // np.maximum(cpu, 1), RATE_MAX)
    memory_rate = np.minimum((devices << RATE_SHIFT) // np.maximum(memory, 1), RATE_MAX)
    counts = np.array([c.count for c in classes], dtype=np.int64)
    like, column = np.unique(np.stack((counts, cpu_rate, memory_rate)), axis=1, return_inverse=True)
    joined: Ints = np.zeros((like.shape[1], len(weights)), dtype=np.int64)
    np.add.at(joined, column.reshape(-1), weights.T)
    return _Tables(
        profile_of_kind=np.append(np.asarray(profile, dtype=np.int64).reshape(-1), 0),
        ranks=len(cpus) + 1,
        cpus=cpus,
        wasted=_wasted(cpus, cpu[:singles], shares, weights[:, :singles], total),
        cpu_rate=like[1],
        memory_rate=like[2],
        singles=int((like[0] == 1).sum()),
        multiples=like[0][like[0] > 1],
        weights=np.ascontiguousarray(joined.T),
        weight=np.maximum(joined.sum(axis=0), 1),
    )


def _wasted(cpus: Ints, cpu: Ints, shares: Ints, weights: Ints, total: int) -> Ints:
    """Return w(f) in micro-devices for each profile, CPU rank and free part, flat: see the theory above.

    Sizes are multiples of some step (mostly 10): between two of its multiples the same classes fit, so w(f) grows as
    f does, and only the multiples need computing.
    """
    sizes, size = np.unique(shares, return_inverse=True)
    counted: Ints = np.zeros((len(sizes), len(cpus) + 1, len(weights)), dtype=np.int64)
    np.add.at(counted, (size, 1 + cpus.searchsorted(cpu)), weights.T)
    offered = counted.cumsum(axis=1).transpose(0, 2, 1)[:, None]
    fitting = offered[:, 0].cumsum(axis=0)
    wasted: Ints = np.zeros((WHOLE_MILLI + 1, STAGES, *fitting.shape[1:]), dtype=np.int64)
    step = int(np.gcd.reduce(sizes)) if len(sizes) else WHOLE_MILLI
    for free in range(0, WHOLE_MILLI, step):
        wasted[free] = free * MICRO
        upto = int(sizes.searchsorted(free, side="right"))
        if upto:
            after = (offered[:upto] * wasted[free - sizes[:upto]]).sum(axis=0) * (STAGE_OFFERS - 1)
            some = total + (STAGE_OFFERS - 1) * fitting[upto - 1]
            rest: Ints | int = free * MICRO
            for stage in range(STAGES):
                rest = wasted[free, stage] = (total * rest + after[stage]) // some
        between = wasted[free + 1 : min(free + step, WHOLE_MILLI)]
        between[:] = wasted[free] + MICRO * np.arange(1, len(between) + 1)[:, None, None, None]
    return np.moveaxis(wasted[:, -1], 0, -1).reshape(-1)


def _ranks(cpu: Ints, weights: Ints) -> Ints:
    """Return at most `RANKS_MAX` of the classes' CPUs, ascending: all, or those at equal steps of weight."""
    cpus, place = np.unique(cpu, return_inverse=True)
    if len(cpus) <= RANKS_MAX:
        return cpus
    upto = np.bincount(place.reshape(-1), weights=weights).astype(np.int64).cumsum()
    steps = upto[-1] * np.arange(1, RANKS_MAX + 1) // RANKS_MAX
    chosen: Ints = cpus[np.unique(upto.searchsorted(steps))]
    return chosen


def unusable(mix: Mix, cpu_free: Ints, memory_free: Ints, device_free_milli: Ints, kind: Ints) -> Ints:
    """Return F of each node, in micro-devices, 0 to its free devices. Arguments as those of `scores`."""
    tables = mix.tables
    profile = tables.profile_of_kind[np.minimum(kind, mix.kinds)]
    free = np.maximum(device_free_milli, 0)
    return _unusable(tables, cpu_free, memory_free, free, free.sum(axis=1), profile, _rows(tables, cpu_free, profile))


def scores(
    mix: Mix, ask: Ask, cpu_free: Ints, memory_free: Ints, device_free_milli: Ints, kind: Ints
) -> tuple[Ints, Ints]:
    """Return for each of N nodes how much a replica of `ask` hurts there, lower is better, and its device slot.

    Args:
        mix: typical requests; with none that asks for devices, the node with least left is best.
        ask: one replica. A kind beyond the end of its `kinds` is not accepted; for a kind beyond the mix's, only
            the classes that accept every kind count.
        cpu_free, memory_free: [N] milli-cores and bytes.
        device_free_milli: [N, G] 0..1000 free of each device; 0 for an unhealthy one, -1 where there is none.
        kind: [N] kind of the node's devices, -1 for a node without.
    Returns: score [N], `NO_FIT` where the replica does not fit, else the growth of F in micro-devices, then (in the
        low 20 bits) devices and then CPU left, so that exact ties fall to the fuller node; slot [N], the device for a
        fractional ask on a node where it fits, else -1: the caller chooses among whole devices.
    """
    score: Ints = np.full(len(cpu_free), NO_FIT, dtype=np.int64)
    device: Ints = np.full(len(cpu_free), -1, dtype=np.int64)
    fitting = _fits(ask, cpu_free, memory_free, device_free_milli, kind).nonzero()[0]
    tables = mix.tables
    for begin in range(0, len(fitting), CHUNK):
        index = fitting[begin : begin + CHUNK]
        profile = tables.profile_of_kind[np.minimum(kind[index], mix.kinds)]
        score[index], device[index] = _growth(
            tables, ask, cpu_free[index], memory_free[index], np.maximum(device_free_milli[index], 0), profile
        )
    return score, device


def _fits(ask: Ask, cpu_free: Ints, memory_free: Ints, device_free_milli: Ints, kind: Ints) -> NDArray[np.bool_]:
    fits = (cpu_free >= ask.cpu_milli) & (memory_free >= ask.memory_bytes)
    if not ask.count:
        return fits
    if ask.kinds is not None:
        fits &= np.array((*ask.kinds, False))[np.minimum(kind, len(ask.kinds))]
    fits &= (device_free_milli >= ask.share_milli).sum(axis=1) >= ask.count
    return fits


def _growth(
    tables: _Tables, ask: Ask, cpu_free: Ints, memory_free: Ints, free: Ints, profile: Ints
) -> tuple[Ints, Ints | int]:
    """Return score and slot of nodes that the replica fits on; `free` has no entry below 0.

    The node before and after is one row each of the same arrays: for one node the cost is that of the calls.
    """
    n = len(cpu_free)
    cpu = np.concatenate((cpu_free, cpu_free - ask.cpu_milli))
    memory = np.concatenate((memory_free, memory_free - ask.memory_bytes))
    free = np.concatenate((free, free))
    profile = np.concatenate((profile, profile))
    row = _rows(tables, cpu, profile)
    after = free[n:]
    slot: Ints | int = -1
    if ask.count and ask.share_milli < WHOLE_MILLI:
        slot = _slot(tables, ask.share_milli, after, row[n:])
        after[np.arange(n), slot] -= ask.share_milli
    elif ask.count:
        whole = after == WHOLE_MILLI
        after[whole & (whole.cumsum(axis=1) <= ask.count)] = 0
    total = free.sum(axis=1)
    lost = _unusable(tables, cpu, memory, free, total, profile, row)
    score = lost[n:] - lost[:n]
    score <<= TIE_BITS
    score += np.minimum(total[n:] >> 3, TIE_PART_MAX) << (TIE_BITS // 2)
    score += np.minimum(cpu[n:] >> 8, TIE_PART_MAX)
    return score, slot


def _slot(tables: _Tables, share_milli: int, free: Ints, row: Ints) -> Ints:
    """Return for each node the device whose expected waste grows least; equal ones: the fullest, then the first."""
    fits = free >= share_milli
    if not len(tables.cpu_rate):
        tightest: Ints = np.where(fits, free, NO_FIT).argmin(axis=1)
        return tightest
    before = row[:, None] + free
    growth = tables.wasted[np.where(fits, before - share_milli, 0)] - tables.wasted[before]
    slot: Ints = np.where(fits, growth * (2 * WHOLE_MILLI) + free, NO_FIT).argmin(axis=1)
    return slot


def _rows(tables: _Tables, cpu: Ints, profile: Ints) -> Ints:
    """Return where the row w(0..1000) of each node begins in `tables.wasted`."""
    return (profile * tables.ranks + tables.cpus.searchsorted(cpu, side="right")) * (WHOLE_MILLI + 1)


def _unusable(
    tables: _Tables, cpu: Ints, memory: Ints, free: Ints, total_milli: Ints, profile: Ints, row: Ints
) -> Ints:
    total = total_milli * MICRO
    if not len(tables.cpu_rate):
        return total
    singly = total - tables.wasted[row[:, None] + free].sum(axis=1)
    usable = np.minimum(cpu, HOST_MAX)[:, None] * tables.cpu_rate
    np.minimum(usable, np.minimum(memory >> 20, HOST_MAX)[:, None] * tables.memory_rate, out=usable)
    usable >>= RATE_SHIFT
    part = usable[:, : tables.singles]
    np.minimum(part, singly[:, None], out=part)
    if len(tables.multiples):
        whole = (free == WHOLE_MILLI).sum(axis=1)[:, None]
        part = usable[:, tables.singles :]
        np.minimum(part, whole // tables.multiples * (tables.multiples * (WHOLE_MILLI * MICRO)), out=part)
    if len(tables.weights) == 1:
        total -= usable @ tables.weights[0] // tables.weight[0]
    else:
        usable *= tables.weights[profile]
        total -= usable.sum(axis=1) // tables.weight[profile]
    return total
