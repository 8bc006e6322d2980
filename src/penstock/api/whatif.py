"""What-if: one's own jobs under other rules, tried beside the server."""

from typing import Literal

import msgspec

from penstock.core.model.whatif import WhatIfResult

WhatIfState = Literal["queued", "running", "done", "failed", "cancelled"]


class WhatIfAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is to be tried on the jobs of the log."""

    set: list[str] = []
    """PATH=VALUE as `POST /config` takes it: the rules in force with these changes."""
    policies: list[str] = []
    """Words such as `fair_share+easy`, each tried on its own with the changes of `set`."""
    nodes: str = ""
    """Other nodes, such as `+4xH100`, `-2` or `90`."""
    since: str = ""
    """Only jobs submitted in the last, such as `30d`; empty: all that the log has, within a bound."""


class WhatIfRules(msgspec.Struct, frozen=True):
    """One entry of `result.after` as a change of the configuration."""

    name: str
    set: list[str]
    """What `POST /config` takes as `set`; empty where nothing is to be changed, or it cannot be said so."""
    changes: list[str]
    """For people."""


class WhatIfView(msgspec.Struct, frozen=True):
    """A what-if, and what it has come to; kept for an hour."""

    id: str
    state: WhatIfState
    progress: float
    """From 0 to 1."""
    user: str
    created_ms: int
    ended_ms: int
    asked: WhatIfAsked
    base: str
    """Digest of the configuration that it was compared with: `base` of `POST /config`."""
    rules: list[WhatIfRules]
    """In the order of `result.after`."""
    problem: str = ""
    """Why it failed."""
    result: WhatIfResult | None = None


class WhatIfList(msgspec.Struct, frozen=True):
    """The newest first, without their results."""

    whatifs: list[WhatIfView]
