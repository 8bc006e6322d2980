"""A process that simulates states forward for a server, so that the server goes on answering meanwhile.

It reads questions from its standard input and writes answers to its standard output, each as MessagePack behind its
length (8 bytes, big-endian). It ends when its input does: the server is gone then, for any reason.
"""

import os
import sys
import time
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from penstock.core.lifecycle.requests import Submit
from penstock.core.messages.requests import Refusal
from penstock.core.model.answers import PlanAnswer
from penstock.core.model.estimates import Times
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import JobState
from penstock.core.predict.arrivals import Arrival
from penstock.core.predict.forecast import Forecaster, PastRun
from penstock.core.state.images import unpacked
from penstock.core.state.state import Image
from penstock.extensions import installed_policies
from penstock.sim.forecast.dryrun import dry_run
from penstock.sim.forecast.outlook import Lengths, Outlook, learned_lengths, outlook

NICENESS = 10
FRAME_MAX_BYTES = 1 << 32
QUANTILES = (0.1, 0.5, 0.9)


class WhenStart(msgspec.Struct, frozen=True, tag=True):
    """When do these waiting jobs start?"""

    image: Image
    history: tuple[PastRun, ...]
    now_ms: int
    budget_ms: int
    """No further sample is begun after this long."""
    wanted: tuple[JobId, ...]
    seed: int = 0
    days: tuple[tuple[Arrival, ...], ...] = ()
    """What was submitted on past days."""


class WhatIfSubmitted(msgspec.Struct, frozen=True, tag=True):
    """What would become of the jobs of this request?"""

    image: Image
    history: tuple[PastRun, ...]
    now_ms: int
    budget_ms: int
    request: Submit
    outcomes: dict[JobId, JobState]
    """Final states of jobs that have left the state and that the request depends on."""
    days: tuple[tuple[Arrival, ...], ...] = ()


class Started(msgspec.Struct, frozen=True, tag=True):
    """Start times by quantile of the samples: early, likely, late (unix ms; 0 where too few have a start)."""

    samples: int
    times: dict[JobId, Times]


class ForecastPlan(msgspec.Struct, frozen=True, tag=True):
    """What would become of a request, or why it would be refused."""

    plan: PlanAnswer | None = None
    refusal: Refusal | None = None


class ForecastFailed(msgspec.Struct, frozen=True, tag=True):
    """The question could not be answered."""

    text: str


Question = WhenStart | WhatIfSubmitted
Answer = Started | ForecastPlan | ForecastFailed


def answer(question: Question) -> Started | ForecastPlan:
    begun_ms = _clock_ms()

    def spent() -> float:
        return (_clock_ms() - begun_ms) / question.budget_ms if question.budget_ms > 0 else 1.0

    question = replace(question, image=unpacked(question.image))
    lengths, policies = _lengths(question), installed_policies()
    if isinstance(question, WhenStart):
        found = outlook(
            question.image,
            question.wanted,
            question.now_ms,
            lengths,
            seed=question.seed,
            policies=policies,
            days=question.days,
            spent=spent,
        )
        samples = next((one.samples for one in found.values()), 0)
        return Started(samples, {job_id: times_of(one) for job_id, one in found.items()})
    planned = dry_run(
        question.image,
        question.request,
        question.now_ms,
        lengths,
        finished=question.outcomes,
        policies=policies,
        days=question.days,
        spent=spent,
    )
    return ForecastPlan(refusal=planned) if isinstance(planned, Refusal) else ForecastPlan(planned)


def times_of(found: Outlook) -> Times:
    early_ms, likely_ms, late_ms = (found.quantile_ms(part) for part in QUANTILES)
    return early_ms, likely_ms, late_ms


def _lengths(question: Question) -> Lengths:
    """Return lengths learned from finished and from running jobs."""
    forecaster = Forecaster(question.image.jobs, question.history)
    return learned_lengths(forecaster.predictor)


def _clock_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def read_frame(source: BinaryIO) -> bytes | None:
    """Return the next message, or None when there is none any more."""
    head = source.read(8)
    if len(head) < 8:
        return None
    size = int.from_bytes(head, "big")
    if size > FRAME_MAX_BYTES:
        raise EOFError(f"{size} bytes are announced: that is no message")
    body = source.read(size)
    return body if len(body) == size else None


def write_frame(target: BinaryIO, body: bytes) -> None:
    target.write(len(body).to_bytes(8, "big"))
    target.write(body)
    target.flush()


def main() -> None:
    os.nice(NICENESS)
    target = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints of a third party's policy are no answers
    questions, answers = msgspec.msgpack.Decoder(Question), msgspec.msgpack.Encoder()
    while (body := read_frame(sys.stdin.buffer)) is not None:
        found: Answer
        try:
            found = answer(questions.decode(body))
        except Exception as error:  # noqa: BLE001 - reported to the server; the next question may succeed
            found = ForecastFailed(f"{type(error).__name__}: {error}")
        write_frame(target, answers.encode(found))


if __name__ == "__main__":
    main()
