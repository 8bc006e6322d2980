"""When the jobs of a schedule are submitted: the field `schedule` of a job file."""

from typing import Literal

import msgspec

CatchUp = Literal["none", "last", "all"]
"""What follows times that passed while no server ran: nothing, one run, or a run for each."""
Overlap = Literal["skip", "queue", "allow"]
"""What follows where jobs of an earlier run are not over: no run, one that waits for them, or one beside them."""
DEFAULT_ZONE = "UTC"


class ScheduleRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A checked `schedule`. Times in unix ms; 0: no bound."""

    cron: str
    """Five fields as cron has them, or `@daily` and its like."""
    zone: str = DEFAULT_ZONE
    name: str = ""
    catch_up: CatchUp = "last"
    overlap: Overlap = "skip"
    start_ms: int = 0
    """Not due before."""
    end_ms: int = 0
    """Not due from then on."""
    paused: bool = False
    """Set, and not due until it is resumed."""
