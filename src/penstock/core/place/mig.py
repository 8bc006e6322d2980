"""Where instances of NVIDIA's Multi-Instance GPU (MIG) may lie on a device, and which start leaves the most open.

Theory. A device has memory slices in a row. An instance of a profile covers a fixed number of neighbouring ones and
may start only at the positions the driver lists; instances never overlap. Beside that it needs compute slices and
media engines (decoders, and the one optical-flow engine that makes a profile a `+me` one), limited on each device.
A profile can need more memory slices than compute slices: that is why 3g + 3g fills a device of seven compute
slices. A layout is legal when every instance lies at an allowed start and no sum is exceeded; nothing else counts.

Sources: profiles, counts and engines: NVIDIA Multi-Instance GPU User Guide, "Supported MIG Profiles". Starts and
sizes: `nvidia-smi mig -lgipp` of A30, A100, H100, H100 NVL, B200 and RTX PRO 6000. Instance memory: the lowest
value `nvidia-smi mig -lgip` has been seen to report (it varies by up to 1.5 GiB with the driver), in MiB.
A profile's name can vary with the driver too; an adapter that can ask NVML may build a `Geometry` from its answers.
Not in here, because their starts were not found published: GB200, GH200 144 GB, RTX PRO 5000 and 4500, Thor.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

import msgspec

MIB = 2**20
GIB = 2**30
GB = 10**9

MEMORY_TOLERANCE_MILLI = 40
"""How far a device's memory may be from a nominal size, in thousandths of it."""
NEAREST_MAX = 3
FUTURES_CACHED_MAX = 8192
"""Remembered states of `_futures`: an A100 has about a thousand."""


class MigProfile(msgspec.Struct, frozen=True):
    """One kind of instance: its use of a device, and where it may lie."""

    name: str
    """As `nvidia-smi` writes it without the word MIG, such as `3g.40gb` or `1g.10gb+me`."""
    compute_slices: int
    memory_slices: int
    memory_bytes: int
    """What a job in the instance can allocate at most, a little below what the name promises."""
    starts: tuple[int, ...]
    """Memory slices at which an instance may start, ascending."""
    count_max: int
    """Instances of this profile on an otherwise empty device; follows from the starts and the engines."""
    decoders: int = 0
    extensions: int = 0
    """1 when it holds the device's optical-flow engine, as `+me` profiles and the whole device do."""

    @property
    def placements(self) -> str:
        """The possible placements as NVML's tools print them: `{0,4}:4` is a start at 0 or 4, four slices long."""
        return "{" + ",".join(map(str, self.starts)) + "}:" + str(self.memory_slices)


class Geometry(msgspec.Struct, frozen=True):
    """How devices of one model and memory size can be divided."""

    name: str
    """Model family and nominal size, such as `H100 80GB`."""
    words: tuple[tuple[str, ...], ...]
    """Sets of words, upper case: a device belongs here when its model's name has all words of one set."""
    memory_gb: int
    compute_slices: int
    memory_slices: int
    decoders: int
    extensions: int
    profiles: tuple[MigProfile, ...]

    def profile(self, name: str) -> MigProfile | None:
        """Return the profile called exactly `name`, or None: then `nearest_profiles` says what may have been meant."""
        return next((p for p in self.profiles if p.name == name), None)


class Instance(NamedTuple):
    """An instance on a device: its profile's name and the memory slice at which it starts."""

    profile: str
    start: int


Occupied = Collection[tuple[str, int]]
"""The instances on one device, as `Instance` or plain pairs, in any order."""


class Used(NamedTuple):
    """The resources a layout uses of a device. Two layouts with equal use have the same future.

    Only `used_by` and `grown` make one; `grown` takes what `open_starts` allows.
    """

    slices: int = 0
    """Bit i is set when memory slice i is covered."""
    compute_slices: int = 0
    decoders: int = 0
    extensions: int = 0


def geometry_of(model: str, memory_bytes: int) -> Geometry | None:
    """Return how a device of this model (as its vendor names it, any case) can be divided, or None if it cannot.

    Sizes are sold in GB (10^9) or GiB and reported a little short of either, so the family's nearest nominal size
    wins if it is within 4 %.
    """
    words = set(re.findall(r"[A-Z0-9]+", model.upper()))
    best: tuple[int, Geometry] | None = None
    for geometry in GEOMETRIES:
        if any(words.issuperset(wanted) for wanted in geometry.words):
            off = min(_off_milli(memory_bytes, geometry.memory_gb * unit) for unit in (GB, GIB))
            if off <= MEMORY_TOLERANCE_MILLI and (best is None or off < best[0]):
                best = (off, geometry)
    return best[1] if best else None


def _off_milli(value: int, nominal: int) -> int:
    return 1000 * abs(value - nominal) // nominal


def nearest_profiles(geometry: Geometry, name: str) -> tuple[str, ...]:
    """Return up to three profile names of `geometry` that look like `name`, nearest first; all when none does."""
    names = sorted(p.name for p in geometry.profiles)
    close = difflib.get_close_matches(name.lower().removeprefix("mig").strip(" -"), names, n=NEAREST_MAX, cutoff=0.6)
    return tuple(close) if close else tuple(names)


def illegal(geometry: Geometry, occupied: Occupied) -> str:
    """Return in one sentence why these instances cannot lie together on a device, or '' when they can."""
    used = Used()
    for name, start in sorted(occupied):
        profile = geometry.profile(name)
        if profile is None:
            return (
                f"profile {name} is none of {geometry.name}: nearest are {', '.join(nearest_profiles(geometry, name))}"
            )
        if start not in profile.starts:
            return f"profile {name} starts at {start}; allowed on {geometry.name} is {profile.placements}"
        if not _fits(geometry, used, profile, start):
            return f"profile {name} at {start} does not fit with the other instances on {geometry.name}"
        used = grown(used, profile, start)
    return ""


def starts(geometry: Geometry, occupied: Occupied, profile: str) -> tuple[int, ...]:
    """Return the memory slices at which an instance of `profile` can start now, ascending.

    Raises: ValueError for an unknown profile or an illegal layout: validation should have caught it.
    """
    return open_starts(geometry, used_by(geometry, occupied), _known(geometry, profile))


def count_more(geometry: Geometry, occupied: Occupied, profile: str) -> int:
    """Return how many instances of `profile` still fit, best placed, if nothing else is added.

    Raises: ValueError as `starts`.
    """
    _known(geometry, profile)
    return _most(geometry, used_by(geometry, occupied), profile)


def best_start(
    geometry: Geometry,
    occupied: Occupied,
    profile: str,
    weights: Mapping[str, int] | None = None,
    among: Collection[int] | None = None,
) -> int | None:
    """Return the start of `profile` that leaves the most future options, or None when it does not fit.

    Compared in this order: the kinds of profile that still fit; with `weights` the memory slices that requests of
    that mix could still use (summed over profiles: weight x most instances x slices each); the number of
    different sets of instances that could still be added, by exact search; the lowest start.

    Args:
        weights: how often each profile is asked for (any unit, absent is 0); None means that all count alike.
            A profile of weight 0 does not count among the kinds either.
        among: starts to choose from; None: any.
    Raises: ValueError as `starts`.
    Why kinds first: in every reachable layout of every model here there is one start that keeps all the kinds any
    other start keeps (shown by enumeration in the tests), so no request becomes impossible that need not. That start
    leaves most of each single kind as well, so for these models it matters which weights are 0, not how large the
    others are; a geometry read from a driver may differ.
    """
    wanted = _known(geometry, profile)
    used = used_by(geometry, occupied)
    scored = [
        (_options(geometry, grown(used, wanted, start), weights), -start)
        for start in open_starts(geometry, used, wanted)
        if among is None or start in among
    ]
    return -max(scored)[1] if scored else None


def openness(geometry: Geometry, used: Used) -> tuple[int, int]:
    """Return how much a state leaves open: the kinds of profile that still fit, then the sets that could be added."""
    kinds, _, sets = _options(geometry, used, None)
    return kinds, sets


def addable(geometry: Geometry, used: Used, names: Iterable[str]) -> bool:
    """Return whether instances of these profiles could be added to a state, all of them."""
    return tuple(sorted(names)) in _futures(geometry, used)


def _options(geometry: Geometry, used: Used, weights: Mapping[str, int] | None) -> tuple[int, int, int]:
    """Return the sort key of a state, highest for the one with the most future options."""
    kinds = usable = 0
    for profile in geometry.profiles:
        weight = 1 if weights is None else weights.get(profile.name, 0)
        if weight > 0 and open_starts(geometry, used, profile):
            kinds += weight
            if weights is not None:
                usable += weight * profile.memory_slices * _most(geometry, used, profile.name)
    return kinds, usable, len(_futures(geometry, used))


@lru_cache(maxsize=FUTURES_CACHED_MAX)
def _futures(geometry: Geometry, used: Used) -> frozenset[tuple[str, ...]]:
    """Return every set of instances that could still be added (profile names, sorted), the empty one included."""
    found: set[tuple[str, ...]] = {()}
    for profile in geometry.profiles:
        for start in open_starts(geometry, used, profile):
            for rest in _futures(geometry, grown(used, profile, start)):
                found.add(tuple(sorted((profile.name, *rest))))
    return frozenset(found)


def _most(geometry: Geometry, used: Used, name: str) -> int:
    return max(sum(each == name for each in added) for added in _futures(geometry, used))


def _known(geometry: Geometry, name: str) -> MigProfile:
    profile = geometry.profile(name)
    if profile is None:
        raise ValueError(illegal(geometry, [(name, 0)]))
    return profile


def used_by(geometry: Geometry, occupied: Occupied) -> Used:
    """Return what these instances use of a device.

    Raises: ValueError for an unknown profile or an illegal layout.
    """
    reason = illegal(geometry, occupied)
    if reason:
        raise ValueError(reason)
    used = Used()
    for name, start in occupied:
        used = grown(used, _known(geometry, name), start)
    return used


def open_starts(geometry: Geometry, used: Used, profile: MigProfile) -> tuple[int, ...]:
    """Return where an instance of `profile` can start beside what is used, ascending."""
    return tuple(start for start in profile.starts if _fits(geometry, used, profile, start))


def _fits(geometry: Geometry, used: Used, profile: MigProfile, start: int) -> bool:
    return (
        not used.slices & _mask(profile, start)
        and used.compute_slices + profile.compute_slices <= geometry.compute_slices
        and used.decoders + profile.decoders <= geometry.decoders
        and used.extensions + profile.extensions <= geometry.extensions
    )


def grown(used: Used, profile: MigProfile, start: int) -> Used:
    """Return what is used once an instance was added."""
    return Used(
        used.slices | _mask(profile, start),
        used.compute_slices + profile.compute_slices,
        used.decoders + profile.decoders,
        used.extensions + profile.extensions,
    )


def _mask(profile: MigProfile, start: int) -> int:
    return ((1 << profile.memory_slices) - 1) << start


def _seven(
    name: str,
    *words: tuple[str, ...],
    gb: tuple[int, int, int, int],
    mib: tuple[int, int, int, int],
    decoders: tuple[int, int, int, int, int, int, int] = (1, 1, 1, 2, 3, 4, 7),
) -> Geometry:
    """Return a geometry of seven compute and eight memory slices; `gb` and `mib` are for 1, 2, 4 and 8 of the latter.

    The last memory slice belongs to no single 1g: only profiles that are richer in memory than in compute reach it.
    """
    one, two, four, eight = gb
    table = (
        (f"1g.{one}gb", 1, 1, mib[0], tuple(range(7)), 7, 0),
        (f"1g.{one}gb+me", 1, 1, mib[0], tuple(range(7)), 1, 1),
        (f"1g.{two}gb", 1, 2, mib[1], (0, 2, 4, 6), 4, 0),
        (f"2g.{two}gb", 2, 2, mib[1], (0, 2, 4), 3, 0),
        (f"3g.{four}gb", 3, 4, mib[2], (0, 4), 2, 0),
        (f"4g.{four}gb", 4, 4, mib[2], (0,), 1, 0),
        (f"7g.{eight}gb", 7, 8, mib[3], (0,), 1, 1),
    )
    profiles = tuple(
        MigProfile(title, compute, size, memory * MIB, begins, most, decoders[i], extensions)
        for i, (title, compute, size, memory, begins, most, extensions) in enumerate(table)
    )
    return Geometry(name, words, eight, 7, 8, decoders[-1], 1, profiles)


_ALL_4, _HALVES_4 = (0, 1, 2, 3), (0, 2)
_ALL_12, _HALVES_12 = (0, 3, 6, 9), (0, 6)

GEOMETRIES: tuple[Geometry, ...] = (
    Geometry(
        "A30 24GB",
        (("A30",),),
        24,
        compute_slices=4,
        memory_slices=4,
        decoders=4,
        extensions=1,
        profiles=(
            MigProfile("1g.6gb", 1, 1, 5952 * MIB, _ALL_4, 4),
            MigProfile("1g.6gb+me", 1, 1, 5952 * MIB, _ALL_4, 1, decoders=1, extensions=1),
            MigProfile("2g.12gb", 2, 2, 11968 * MIB, _HALVES_4, 2, decoders=2),
            MigProfile("2g.12gb+me", 2, 2, 11968 * MIB, _HALVES_4, 1, decoders=2, extensions=1),
            MigProfile("4g.24gb", 4, 4, 24000 * MIB, (0,), 1, decoders=4, extensions=1),
        ),
    ),
    _seven(
        "A100 40GB",
        ("A100",),
        ("A800",),
        gb=(5, 10, 20, 40),
        mib=(4864, 9856, 19968, 40192),
        decoders=(0, 1, 1, 1, 2, 2, 5),
    ),
    _seven(
        "A100 80GB",
        ("A100",),
        ("A800",),
        gb=(10, 20, 40, 80),
        mib=(9728, 19968, 40192, 80384),
        decoders=(0, 1, 1, 1, 2, 2, 5),
    ),
    _seven("H100 80GB", ("H100",), ("H800",), gb=(10, 20, 40, 80), mib=(9984, 20096, 40448, 81152)),
    _seven("H100 94GB", ("H100",), ("H800",), gb=(12, 24, 47, 94), mib=(10880, 22016, 47232, 94848)),
    _seven("H100 96GB", ("H100",), ("GH200",), ("H20",), gb=(12, 24, 48, 96), mib=(11264, 23552, 47616, 95232)),
    _seven("H200 141GB", ("H200",), gb=(18, 35, 71, 141), mib=(16384, 33024, 71168, 143360)),
    _seven("B200 180GB", ("B200",), gb=(23, 45, 90, 180), mib=(20992, 45312, 91136, 182784)),
    Geometry(
        "RTX PRO 6000 96GB",
        (("RTX", "PRO", "6000"),),
        96,
        compute_slices=4,
        memory_slices=12,
        decoders=4,
        extensions=1,
        profiles=(
            MigProfile("1g.24gb", 1, 3, 24192 * MIB, _ALL_12, 4, decoders=1),
            MigProfile("1g.24gb+me", 1, 3, 24192 * MIB, _ALL_12, 1, decoders=1, extensions=1),
            MigProfile("1g.24gb+gfx", 1, 3, 24192 * MIB, _ALL_12, 4, decoders=1),
            MigProfile("1g.24gb+me.all", 1, 3, 24192 * MIB, _ALL_12, 1, decoders=4, extensions=1),
            MigProfile("1g.24gb-me", 1, 3, 24192 * MIB, _ALL_12, 4),
            MigProfile("2g.48gb", 2, 6, 48512 * MIB, _HALVES_12, 2, decoders=2),
            MigProfile("2g.48gb+gfx", 2, 6, 48512 * MIB, _HALVES_12, 2, decoders=2),
            MigProfile("2g.48gb+me.all", 2, 6, 48512 * MIB, _HALVES_12, 1, decoders=4, extensions=1),
            MigProfile("2g.48gb-me", 2, 6, 48512 * MIB, _HALVES_12, 2),
            MigProfile("4g.96gb", 4, 12, 97280 * MIB, (0,), 1, decoders=4, extensions=1),
            MigProfile("4g.96gb+gfx", 4, 12, 97280 * MIB, (0,), 1, decoders=4, extensions=1),
        ),
    ),
)
"""Every family the module knows, with its sizes."""
