"""What elastic jobs of a trace ask for: their size and more, that size alone, or one replica and a range of batches.

The last is for programs that were measured (`Work.trains`): a scheduler chooses size and batch by what they report.
"""

from typing import Literal, get_args

from msgspec.structs import replace

from penstock.core.model.batching import BatchAsk
from penstock.core.model.errors import InvalidInput, Problem, nearest
from penstock.traces.model import Trace, TraceJob, Work
from penstock.traces.training import Training

Asking = Literal["goodput", "speedup", "off"]
ASKING: tuple[str, ...] = get_args(Asking)


def asking(trace: Trace, how: str) -> Trace:
    """Return the trace with its elastic jobs asking otherwise.

    Args:
        how: `speedup` as they are; `off` for the size that they ask for and no other; `goodput` for one replica and
            more, with the range of batches that was measured.
    Raises: InvalidInput for another word, and for `goodput` where no job was measured.
    """
    if how not in ASKING:
        raise _wrong(f"elastic is '{how}', expected one of {', '.join(ASKING)}", nearest(how, ASKING))
    if how == "off":
        return replace(trace, jobs=tuple(_fixed(job) for job in trace.jobs))
    if how == "speedup":
        return trace
    devices = sum(len(node.devices) for node in trace.nodes)
    asked = _AskingForGoodput(devices)
    jobs = tuple(asked.of(job) for job in trace.jobs)
    if not asked.known:
        raise _wrong("elastic is 'goodput', and no job of this trace was measured at other batches", "use speedup")
    return replace(trace, jobs=jobs)


def _wrong(what: str, hint: str) -> InvalidInput:
    return InvalidInput(what, problems=(Problem("invalid_value", "elastic", what, hint=hint),))


def _fixed(job: TraceJob) -> TraceJob:
    ask = job.spec.ask
    return replace(job, spec=replace(job.spec, ask=replace(ask, replicas_max=0))) if ask.elastic else job


class _AskingForGoodput:
    """Changes jobs; those that train alike share one program."""

    def __init__(self, devices: int) -> None:
        self._devices = devices
        self.known: dict[int, tuple[BatchAsk, int, Work]] = {}
        """By program: its batches, its largest size, its work."""

    def of(self, job: TraceJob) -> TraceJob:
        trains, ask = job.work.trains, job.spec.ask
        if trains is None or not ask.elastic or ask.others:
            return job
        found = self.known.get(id(trains)) or self._learn(trains)
        if found is None:
            return job
        batch, most, work = found
        return replace(
            job, spec=replace(job.spec, ask=replace(ask, replicas=1, replicas_max=most), batch=batch), work=work
        )

    def _learn(self, trains: Training) -> tuple[BatchAsk, int, Work] | None:
        profile = trains.profile
        (smallest, largest), (least, most) = profile.batches, profile.local_batches
        if profile.step_s(1, smallest) is None:
            return None
        free = Training(profile, 1, smallest)
        batch = BatchAsk(smallest, largest, most, least)
        replicas = max(1, min(self._devices, largest // least))
        self.known[id(trains)] = batch, replicas, Work(free.run_ms, saves=True, trains=free)
        return self.known[id(trains)]
