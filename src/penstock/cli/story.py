"""The events of a job as sentences, and its attempts summed up from them."""

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.api.types import ReplicaView
from penstock.core.model import events as ev
from penstock.core.model.jobs import ReplicaPlace
from penstock.core.model.quantities import format_duration, format_size
from penstock.core.model.stop_rules import STOP_RULES
from penstock.core.model.words import counted

NODES_NAMED_MAX = 8
WAITED_TOLD_MS = 1_000
"""Shorter waits are not told."""
_OUTCOMES = {
    "lost": "was lost",
    "succeeded": "succeeded",
    "failed": "failed",
    "time_limit": "reached its time limit",
    "hung": "hung",
    "drained": "left a drained node",
    "held": "was stopped, as its tenant is held",
    "resized": "ended to change its size",
    "moved": "ended to move",
}
"""How attempts end; what is not here is `was` and the outcome."""


class AttemptTold(NamedTuple):
    """One attempt of a job, as its events tell it (unix ms)."""

    number: int
    began_ms: int
    ended_ms: int
    """0: it has not ended."""
    where: str
    end: str
    """How it ended and why, in words; empty until it ends."""


def story(record: ev.Record) -> str:
    """Return one event of a job as a sentence."""
    event = record.event
    match event:
        case ev.JobSubmitted():
            array = f", index {event.array_index} of array {event.array_id}" if event.array_id is not None else ""
            by = f"schedule {event.scheduled.schedule} of {event.user}" if event.scheduled is not None else event.user
            return f"submitted by {by}{array}"
        case ev.JobCancelRequested():
            return f"{event.by} asked to cancel it" + _because(event.reason)
        case ev.AttemptAllocated():
            waited = f" after waiting {format_duration(event.waited_ms)}" if event.waited_ms >= WAITED_TOLD_MS else ""
            by = f" by {event.scheduler}" if event.scheduler else ""
            by += f" beside job {event.pairing.other}" if event.pairing is not None else ""
            return f"attempt {event.attempt} was placed on {places_text(event.places)}{by}{waited}"
        case ev.AttemptStopRequested():
            return f"attempt {event.attempt} was asked to stop within {format_duration(event.grace_ms)}: {_why(event)}"
        case ev.AttemptSuspended():
            return f"attempt {event.attempt} was suspended: it keeps its memory and gives its CPUs away"
        case ev.AttemptResumed():
            return f"attempt {event.attempt} runs again where it was suspended"
        case ev.AttemptEnded():
            return f"attempt {event.attempt} {_ended(event)}"
        case ev.JobRequeued():
            later = event.not_before_ms - record.time_ms
            text = "waits again" + (f", for {format_duration(later)} at least" if later > 0 else "")
            return text + (": one of its retries" if event.counts_as_retry else "")
        case ev.CheckpointAbandoned():
            return (
                f"starts anew: its checkpoint of step {event.step} is out of reach, as no node on its storage is there"
            )
        case ev.JobHeld():
            return f"held by {event.by}"
        case ev.JobReleased():
            return f"released by {event.by}"
        case ev.JobProtected():
            return f"protected from preemption: {event.why}" if event.why else "may be preempted again"
        case ev.JobRequeueRequested():
            return f"{event.by} asked to put it back into its queue" + (", held" if event.hold else "")
        case ev.JobEdited():
            return f"edited by {event.by}: {_changes(event)}"
        case ev.JobFinished():
            return _plain(event.state) + _because(event.reason)
        case _:
            return _of_programs(event)


def _of_programs(event: ev.AnyEvent) -> str:
    """Return an event of replicas and of what programs report."""
    match event:
        case ev.ReplicaStarted():
            return f"replica {event.rank} started" + (f", process {event.pid}" if event.pid else "")
        case ev.ReplicaExited():
            return f"replica {event.rank} ended: {event.exit.text()}"
        case ev.DeviceShared():
            return f"shares its device with job {event.pairing.other} from now on: {event.pairing.why}"
        case ev.DeviceShareEnded():
            return "has its device for itself again"
        case ev.ReplicaFrozen():
            return f"replica {event.rank} was frozen"
        case ev.CheckpointSaved():
            size = f", {format_size(event.size_bytes)}" if event.size_bytes else ""
            return f"checkpoint saved at step {event.step:,}{size}" + (f" ({_plain(event.why)})" if event.why else "")
        case ev.JobResumed():
            lost = f"; {counted(event.lost_steps, 'step')} lost" if event.lost_steps else ""
            return f"attempt {event.attempt} resumed at step {event.step:,}{lost}"
        case ev.ProgressNoted():
            return f"step {event.step:,}{_gauges(event)}"
        case ev.BatchChosen():
            more = f", {event.batch.accumulation + 1} passes an update" if event.batch.accumulation else ""
            return f"goes on with a batch of {event.batch.local:,} samples a replica and pass{more}"
        case ev.UseNoted():
            never = f"; {counted(event.untouched, 'device')} never used" if event.untouched else ""
            return f"devices busy {event.busy_milli // 10} % of {format_duration(event.covered_ms)}, as measured{never}"
        case ev.SaveSignalNoted():
            return f"saves and continues on {event.signal}" if event.signal else "no longer saves on a signal"
        case ev.HangFound():
            return f"makes no step since step {event.step:,}: {event.text}"
        case ev.IdleNoted():
            cause = event.text or {"data": "it waits for data", "hang": "it makes no step"}.get(event.cause, "")
            return f"idle for {format_duration(event.idle_ms)}" + _because(cause)
        case ev.NodeStruck():
            return f"a sign that node {event.node} fails: {event.text}"
        case _:
            return _by_name(event)


def _by_name(event: ev.AnyEvent) -> str:
    """Return the name of an event in words, with its reason where it has one."""
    name = type(event).__name__
    words = "".join(" " + c.lower() if c.isupper() else c for c in name).strip()
    by = getattr(event, "by", "")
    return words + (f" by {by}" if by else "") + _because(str(getattr(event, "reason", "")))


def _changes(event: ev.JobEdited) -> str:
    """Return the fields that an edit set."""
    given = {name: getattr(event.change, name) for name in event.change.__struct_fields__}
    told = []
    for name, value in given.items():
        if value is None or value == ():
            continue
        shown = format_duration(value) if name.endswith("_ms") else value
        if isinstance(value, tuple):
            shown = ", ".join("=".join(one) if isinstance(one, tuple) else str(one) for one in value)
        told.append(f"{_plain(name.removesuffix('_ms'))} {shown}")
    return ", ".join(told) or "nothing"


def _plain(code: str) -> str:
    return code.replace("_", " ")


def _because(reason: str) -> str:
    return f": {_words(reason)}" if reason else ""


def _words(text: str) -> str:
    """Return a sentence as it is, and a code in words."""
    return text if " " in text else _plain(text)


def _why(event: ev.AttemptStopRequested) -> str:
    text = _plain(event.reason)
    text += f" for job {event.beneficiary}" if event.beneficiary is not None else ""
    return text + (f" ({STOP_RULES.get(event.rule, _words(event.rule))})" if event.rule else "")


def _ended(event: ev.AttemptEnded) -> str:
    words = _OUTCOMES.get(event.outcome, f"was {_plain(event.outcome)}")
    at = f" at step {event.step:,}" if event.step else ""
    return words + at + _because(event.detail)


def _gauges(event: ev.ProgressNoted) -> str:
    told = event.gauges
    text = f" of {told.total_steps:,}" if told.total_steps else ""
    text += f", {told.step_ms:,} ms each" if told.step_ms else ""
    text += f", {told.data_wait_milli / 10:.0f} % of the time waiting for data" if told.data_wait_milli else ""
    return text + (", the loss is not finite" if told.loss_not_finite else "")


def places_text(places: Iterable[ReplicaPlace | ReplicaView]) -> str:
    """Return nodes and devices of places, such as `node-a, devices 0-3; node-b, device 1`."""
    nodes: dict[str, list[int]] = {}
    for place in places:
        nodes.setdefault(str(place.node), []).extend(place.devices)
    parts = [node_part(node, devices) for node, devices in list(nodes.items())[:NODES_NAMED_MAX]]
    more = len(nodes) - NODES_NAMED_MAX
    return "; ".join(parts) + (f" and {counted(more, 'more node')}" if more > 0 else "")


def node_part(node: str, devices: Iterable[int]) -> str:
    """Return one node with its devices, such as `node-a, devices 0-2, 5`."""
    held = sorted(set(devices))
    runs: list[list[int]] = []
    for index in held:
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"{node}, device{'s' * (len(held) > 1)} {text}" if held else node


def attempts_of(records: Sequence[ev.Record]) -> list[AttemptTold]:
    """Return the attempts of a job in order, each with why it ended."""
    found: dict[int, AttemptTold] = {}
    stops: dict[int, str] = {}
    for record in records:
        match record.event:
            case ev.AttemptAllocated() as event:
                number = event.attempt
                found[number] = AttemptTold(number, record.time_ms, 0, places_text(event.places), "")
            case ev.AttemptStopRequested() as event:
                stops[event.attempt] = _why(event)
            case ev.AttemptEnded() as event if event.attempt in found:
                asked = stops.get(event.attempt, "")
                detail = f": {asked}" if asked and not event.detail else ""
                found[event.attempt] = found[event.attempt]._replace(
                    ended_ms=record.time_ms, end=_ended(event) + detail
                )
            case _:
                pass
    return list(found.values())


def checkpoints_text(records: Sequence[ev.Record], now_ms: int) -> str:
    """Return how many checkpoints were saved and the last of them, '' where there is none."""
    saved = [(r.time_ms, r.event) for r in records if isinstance(r.event, ev.CheckpointSaved)]
    if not saved:
        return ""
    at_ms, last = saved[-1]
    size = f", {format_size(last.size_bytes)}" if last.size_bytes else ""
    return f"{counted(len(saved), 'checkpoint')}, the last at step {last.step:,}{size}, {moment(at_ms, now_ms)}"


def moment(time_ms: int, now_ms: int) -> str:
    """Return a time in the local zone and how long ago it was, such as `14:03:12 (5m 2s ago)`."""
    return f"{clock(time_ms, now_ms)} ({format_duration(max(0, now_ms - time_ms))} ago)"


def clock(time_ms: int, now_ms: int) -> str:
    """Return a time in the local zone, with its date unless it is today's."""
    then, now = time.localtime(time_ms / 1000), time.localtime(now_ms / 1000)
    return time.strftime("%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d %H:%M:%S", then)
