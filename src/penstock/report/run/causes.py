"""Causes of waiting as the report shows them: order, label, meaning and colour.

Colours: the `bright` scheme of P. Tol, Colour Schemes, SRON/EPS/TN/09-002, 2021, and shades of it.
"""

from typing import NamedTuple, get_args

from penstock.core.explain.reasons import CONSTRAINTS
from penstock.core.model.plan import WaitCode
from penstock.report.run.model import WaitCause


class Cause(NamedTuple):
    """How one cause is shown."""

    label: str
    meaning: str
    colour: str


_SHOWN: dict[WaitCause, Cause] = {
    "no_fit": Cause("no room", "no set of nodes had what it asked for free", "#4477aa"),
    "making_room": Cause("room being made", "others were saving and leaving so that it could start", "#ccbb44"),
    "dependency": Cause("dependency", "a job it depends on had not ended", "#aa3377"),
    "held": Cause("held", "a user held it", "#997700"),
    "array_turn": Cause("array's turn", "its array ran as many jobs as it may", "#bbcc33"),
    "kept_back": Cause("kept back", "it fitted, but a job ahead of it would have started later", "#ee6677"),
    "quota": Cause("quota", "a queue above it held as much as it may", "#bb5566"),
    "power_cap": Cause("power limit", "the pool's devices would have drawn more than they may", "#ff8800"),
    "reserve": Cause("pool reserve", "what was free is kept for preemptible jobs", "#ddaa33"),
    "admission": Cause("admission", "as many jobs took turns as the pool can serve", "#004488"),
    "expected_demand": Cause("expected demand", "room was kept for more urgent jobs that were to come", "#882255"),
    "backing_off": Cause("backing off", "the pause before another attempt after a failure", "#66ccee"),
    "cycle_full": Cause("cycle full", "the cycle had started as many jobs as one cycle may", "#228833"),
    "next_cycle": Cause("next cycle", "it fitted; the next cycle would start it", "#bbbbbb"),
    "not_sampled": Cause("not sampled", "no plan was made while it waited", "#777777"),
}


def _plain(code: WaitCode) -> Cause:
    """Return how a code is shown that has no look of its own yet."""
    return Cause(code.replace("_", " "), CONSTRAINTS[code].meaning, "#999999")


CAUSES: dict[WaitCause, Cause] = _SHOWN | {code: _plain(code) for code in get_args(WaitCode) if code not in _SHOWN}
"""In the order in which the report lists them."""
