"""Why a node was closed for its failures, or shut to a tenant: the strikes against it in the log."""

from collections.abc import Iterator, Sequence
from typing import Literal

from penstock.core.audit.types import Check, Ruling
from penstock.core.lifecycle.health import FAILED_CHECK, enough, for_everybody, recent_strikes
from penstock.core.model import events as ev
from penstock.core.model.cluster import CHECKED_BY, Node, Strike
from penstock.core.model.ids import AttemptNumber, JobId
from penstock.core.state.state import State


def closing(record: ev.Record, state: State, version: str) -> Iterator[Ruling]:
    """Yield the ruling on a node that was closed or shut automatically, on the state just before it."""
    event = record.event
    if isinstance(event, ev.NodeShut):
        text, check = f"node {event.node} shut to tenant {event.tenant}", _shut(event, record.time_ms, state)
        yield _ruling(record, text, version, check)
    elif isinstance(event, ev.NodeDrainChanged) and event.draining and event.by == CHECKED_BY:
        node = state.nodes[event.node]
        if not node.draining:  # else its check failed, and it stays closed
            yield _ruling(record, f"node {event.node} closed", version, _closed(node, record, state))


def _ruling(record: ev.Record, text: str, version: str, check: Check) -> Ruling:
    kind: Literal["shut", "close"] = "shut" if isinstance(record.event, ev.NodeShut) else "close"
    about = (JobId(0), AttemptNumber(0), text, check.rule)
    return Ruling(record.seq, record.time_ms, kind, *about, planned=False, version=version, checks=(check,))


def _shut(event: ev.NodeShut, now_ms: int, state: State) -> Check:
    settings = state.config.settings
    recent = recent_strikes(state.nodes[event.node], settings, now_ms)
    theirs = [one for one in recent if not one.own and one.tenant == event.tenant]
    return Check("claims", enough(theirs, settings), f"{_counted(theirs)} of tenant {event.tenant}")


def _closed(node: Node, record: ev.Record, state: State) -> Check:
    settings, now_ms = state.config.settings, record.time_ms
    recent = recent_strikes(node, settings, now_ms)
    found = for_everybody(state.config, recent)
    assert isinstance(record.event, ev.NodeDrainChanged)
    if node.checked_ms == now_ms and record.event.reason.startswith(FAILED_CHECK):
        return Check("check", holds=True, text="it failed its check")
    if any(not one.own and not one.tenant for one in recent):
        return Check("strikes", holds=True, text="the log does not say whose jobs met its failures")
    tenants = sorted({one.tenant for one in found if not one.own})
    text = f"{_counted(found)}; " + (f"claims of tenants {', '.join(tenants)} agree" if tenants else "its own words")
    return Check("strikes", enough(found, settings), text)


def _counted(strikes: Sequence[Strike]) -> str:
    return f"{len(strikes)} failures, {len({one.job_id for one in strikes})} different jobs or the node itself"
