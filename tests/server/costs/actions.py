"""Actions on many jobs that cost the server most: the longest selections, and thousands of jobs that are changed."""

from collections.abc import Iterator
from typing import Any

from tests.server.costs import past
from tests.server.costs.cases import REFUSED, Case, sending

ACTIONS = "POST /jobs/actions"
STARS = "*a" * 8
UNKNOWN = [str(10**9 + i) for i in range(2_000)]


def counts() -> Iterator[Case]:
    """Yield selections that are only counted, for a world with a crowd of jobs."""
    everything = {"all": True}
    yield _case("all own jobs counted", "member", everything, dry_run=True)
    asked = _sent(everything, "cancel", dry_run=True)
    yield Case(ACTIONS, "more jobs than one request may act on", "operator", asked, REFUSED)
    waiting = {"tenant": past.OTHER, "states": ["waiting"]}
    yield _case("100,000 jobs counted", "operator", waiting, dry_run=True)
    slow = {"name": STARS, "labels": {f"l{i}": "x" for i in range(32)}}
    yield _case("a pattern of many stars counted", "operator", slow, dry_run=True)
    yield _case("100,000 numbers counted", "operator", {"ids": ["1-100000"]}, dry_run=True)
    array = past.crowd_array()
    yield _case("an array of 100,000 counted", "operator", {"ids": [f"{array}[0-99999]"]}, dry_run=True)
    yield _case("an array of 100,000 named 2,000 times", "operator", {"ids": [f"{array}[]"] * 2_000}, dry_run=True)
    members = [f"{array}[{','.join(['9'] * 990)}]"] * 30
    yield _case("a member of 100,000 named 30,000 times", "operator", {"ids": members}, dry_run=True)
    arrays = [f"{array + i}[]" for i in range(2_000)]
    yield _case("2,000 members named as arrays", "operator", {"ids": arrays}, dry_run=True)
    ranges = [f"{array + i}-{array + i + 49}" for i in range(2_000)]
    yield _case("2,000 ranges", "operator", {"ids": ranges}, dry_run=True)
    yield _case("2,000 unknown numbers", "member", {"ids": UNKNOWN})


def changes() -> Iterator[Case]:
    """Yield selections that are acted on, the largest last: it leaves nothing that waits."""
    yield _case("all running jobs asked to save", "operator", {"states": ["running"]}, "save")
    yield _refused("one id too many", {"ids": ["1"] * 2_001})
    yield _refused("one number too many", {"ids": ["1-100001"]})
    yield _refused("a long id", {"ids": ["1[" + "0," * 20_000 + "0]"]})
    yield _refused("a pattern with nine stars", {"name": "*" * 9})
    yield _refused("33 labels", {"labels": {f"l{i}": "x" for i in range(33)}})
    yield _refused("a body over 64 KiB", {"name": "n" * 2**16})
    yield _refused("by who may not", {"all": True}, "reader")
    yield _case("all waiting jobs cancelled", "operator", {"states": ["waiting"]}, renews=True)


def _sent(select: Any, action: str, **more: Any) -> Any:
    return sending("POST", "/jobs/actions", lambda: {"action": action, "select": select, **more})


def _case(name: str, caller: str, select: Any, action: str = "cancel", *, renews: bool = False, **more: Any) -> Case:
    return Case(ACTIONS, name, caller, _sent(select, action, **more), renews=renews)


def _refused(name: str, select: Any, caller: str = "member") -> Case:
    statuses = frozenset({403}) if "by who may not" in name else REFUSED
    return Case(ACTIONS, name, caller, _sent(select, "cancel"), statuses, beyond=True)
