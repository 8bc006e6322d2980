"""What gives the right to ask a running attempt to leave."""

from typing import Literal

PreemptionRuleName = Literal[
    "lower_priority", "reclaim", "less_service", "shrink", "grow", "idle", "defrag", "elsewhere", "held_idle"
]
