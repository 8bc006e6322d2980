"""What a job that waits can expect of the pilot, in words with numbers."""

from collections.abc import Sequence
from datetime import UTC, datetime

from penstock.core.model.gang import GangAsk
from penstock.core.model.quantities import format_duration
from penstock.core.model.refused import node_text
from penstock.core.model.words import counted
from penstock.engines.slurm.pilot.lent import LentJob
from penstock.engines.slurm.pilot.needs import Needed
from penstock.engines.slurm.pilot.sizing import Decision, Memory

NONE_NEEDED = Needed(0, {}, {})
NOTHING = Decision((), (), (), Memory())


class Said:
    """What the last look found."""

    def __init__(
        self,
        needed: Needed = NONE_NEEDED,
        decision: Decision = NOTHING,
        asked: Sequence[LentJob] = (),
        held: int = 0,
        most: int = 0,
        problem: str = "",
    ) -> None:
        self._needed, self._decision, self._asked = needed, decision, tuple(asked)
        self._held, self._most, self._problem = held, most, problem

    def of(self, ask: GangAsk, now_s: float) -> str:
        """Return what is known for jobs of a shape, '' where they do not wait for nodes."""
        if why := self._needed.never.get(ask):
            most = counted(self._most, "node")
            refused = node_text(why, self._most, emptied=True)
            return f"pilot: the {most} that it may have at the most cannot hold it: {refused}"
        nodes = self._needed.nodes_of.get(ask)
        if nodes is None:
            return ""
        waits = f"pilot: waits for {counted(nodes, 'Slurm node')}"
        if self._problem or self._decision.again_s:
            again = f"; asked again {at_clock(self._decision.again_s)}" if self._decision.again_s else ""
            return f"{waits}; the last ask failed{f': {self._problem}' if self._problem else ''}{again}"
        if self._asked:
            return f"{waits}, {self._when(now_s)}"
        if self._decision.held_back:
            return f"{waits}; it has {counted(self._held, 'node')}, and may have {self._most} at the most"
        return f"{waits}, which are being asked for" if self._decision.asks else f"{waits}, which are joining"

    def _when(self, now_s: float) -> str:
        first = min(self._asked, key=lambda one: one.submit_s)
        text = f"asked for {format_duration(max(0, int(now_s - first.submit_s)) * 1000)} ago"
        expected = [one.start_s for one in self._asked if one.start_s]
        if expected:
            return f"{text}; Slurm expects a start {at_clock(min(expected))}"
        return f"{text}; Slurm says {first.reason}" if first.reason else text


def at_clock(seconds: float) -> str:
    """Return a moment as people read it, in UTC: `at 10:40:00 UTC`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("at %H:%M:%S UTC")
