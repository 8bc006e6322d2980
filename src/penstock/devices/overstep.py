"""Who uses more memory of a device than its part, and what is done about it. Pure code.

Theory. Two programs on one device fill its memory together, and the one that is within its part fails by the other's
doing. What is measured of a process holds more than what its framework counts: the driver's own context and libraries.
So a replica oversteps when a reading shows more than its limit and some slack (`slack_bytes`). It is warned when
readings in a row show that, asked to save after some time, stopped after more of it; only time in which readings showed
it counts, never a gap between them. It is past once readings show it within its limit for a while; between limit and
slack nothing begins and nothing is forgiven. A replica that is within its limit is never touched, whatever others do.
"""

from collections.abc import Hashable, Mapping
from typing import Generic, Literal, TypeVar

import msgspec

from penstock.core.model.quantities import format_size

Key = TypeVar("Key", bound=Hashable)

SLACK_MIN_BYTES, SLACK_MILLI = 768 * 2**20, 50
"""A context and its libraries take up to about 600 MiB on the devices of today."""
READINGS_LEAST = 3
"""In a row, before a replica is warned."""
SAVE_AFTER_MS = 10_000
STOP_AFTER_MS = 30_000
"""Of readings that show it overstepping, from the first one on."""
GAP_MAX_MS = 3_000
"""Two readings that lie further apart count as this far apart."""
FORGIVEN_AFTER_MS = 10_000
"""Of readings within the limit."""

What = Literal["warn", "save", "stop"]
ORDER: tuple[What, ...] = ("warn", "save", "stop")


class Step(msgspec.Struct, Generic[Key], frozen=True):
    """What is to be done with a replica, once: each step comes after the one before, and at most once for each time
    that it oversteps."""

    key: Key
    index: int
    """Of the device."""
    what: What
    used_bytes: int
    limit_bytes: int

    @property
    def text(self) -> str:
        return f"it {self.deed}"

    @property
    def deed(self) -> str:
        """What the replica did, without a subject."""
        used, limit = format_size(self.used_bytes), format_size(self.limit_bytes)
        return f"used {used} of the memory of device {self.index}, its part is {limit}"


class _State(msgspec.Struct):
    readings: int = 0
    over_ms: int = 0
    within_ms: int = 0
    taken: int = 0
    """How many of the steps."""
    was_over: bool = False
    seen_ms: int | None = None


def slack_bytes(limit_bytes: int) -> int:
    """Return how much more than its limit a replica may have before it counts as overstepping."""
    return max(SLACK_MIN_BYTES, limit_bytes * SLACK_MILLI // 1000)


class Oversteps(Generic[Key]):
    """Folds readings of one node; give it every reading."""

    def __init__(self) -> None:
        self._states: dict[tuple[Key, int], _State] = {}

    def take(
        self, now_ms: int, used: Mapping[tuple[Key, int], int], limits: Mapping[tuple[Key, int], int]
    ) -> tuple[Step[Key], ...]:
        """Return what is to be done now, in the order of devices.

        Args:
            now_ms: monotonic.
            used: memory (bytes) by replica and device, of what was measured; who is not in it was not measured.
            limits: of the replicas that run and have one; others are forgotten.
        """
        self._states = {one: state for one, state in self._states.items() if one in limits}
        found = []
        for (key, index), limit in sorted(limits.items(), key=lambda item: item[0][1]):
            measured = used.get((key, index))
            if measured is None:
                continue
            state = self._states.setdefault((key, index), _State())
            what = _step(state, now_ms, measured, limit)
            if what is not None:
                found.append(Step(key, index, what, measured, limit))
        return tuple(found)


def _step(state: _State, now_ms: int, used: int, limit: int) -> What | None:
    passed_ms = 0 if state.seen_ms is None else min(max(0, now_ms - state.seen_ms), GAP_MAX_MS)
    state.seen_ms = now_ms
    over = used > limit + slack_bytes(limit)
    if over:
        state.readings += 1
        state.over_ms += passed_ms if state.was_over else 0
        state.within_ms = 0
    else:
        state.readings = 0
        state.within_ms += passed_ms if used <= limit else 0
        if state.within_ms >= FORGIVEN_AFTER_MS:
            state.over_ms = state.within_ms = state.taken = 0
    state.was_over = over
    if not over or state.readings < READINGS_LEAST or state.taken == len(ORDER):
        return None
    due_ms = (0, SAVE_AFTER_MS, STOP_AFTER_MS)[state.taken]
    if state.over_ms < due_ms:
        return None
    state.taken += 1
    return ORDER[state.taken - 1]
