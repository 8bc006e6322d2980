"""What-ifs: the server's own log replayed under other rules, one at a time, in a process of low priority.

The process gets the records from here, so it needs no access to the store. Results stay in memory for a while.
"""

import asyncio
import contextlib
import logging
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from penstock import starts
from penstock.api import whatif as api
from penstock.control.config_files import with_changes
from penstock.core.config.diff import diff, digest
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.errors import InvalidInput, Problem
from penstock.core.model.quantities import parse_duration_ms
from penstock.core.model.whatif import WhatIfResult
from penstock.server.backend import Backend
from penstock.server.http.parsing import invalid
from penstock.server.http.responses import ApiError
from penstock.sim.forecast.worker import read_frame, write_frame
from penstock.sim.replay.lab import LabAnswer, LabFailed, LabProgress, LabQuestion
from penstock.sim.replay.variants import Variant, variant
from penstock.traces.nodes import node_change

log = logging.getLogger(__name__)

COMMAND = tuple(starts.python("penstock.sim.replay.lab"))
QUEUED_MAX = 4
QUEUED_PER_USER = 2
VARIANTS_MAX = 4
CHANGES_MAX = 1_000
TEXT_MAX = 1_000
KEPT_MS = 3_600_000
KEPT_MAX = 20
RECORDS_MAX = 400_000
"""The newest of the log, where it has more: reading them takes a server some seconds."""
BATCH = 1_000
PATIENCE_S = 1_800.0
"""A process that has not answered by then is ended."""
SHARE_READING = 0.05
"""Of the progress: reading the log."""


class Wanted(NamedTuple):
    """A checked question."""

    asked: api.WhatIfAsked
    base: ClusterConfig
    variants: tuple[Variant, ...]
    rules: list[api.WhatIfRules]
    digest: str
    """Of `base`."""
    since_ms: int


class _Lab:
    """One what-if; changed on the event loop, but for progress and process."""

    def __init__(self, wanted: Wanted, user: str, now_ms: int) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.wanted, self.user, self.created_ms, self.ended_ms = wanted, user, now_ms, 0
        self.state: api.WhatIfState = "queued"
        self.progress, self.problem = 0.0, ""
        self.result: WhatIfResult | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.cancelled = False

    def view(self, *, whole: bool = True) -> api.WhatIfView:
        return api.WhatIfView(
            self.id,
            self.state,
            round(self.progress, 3),
            self.user,
            self.created_ms,
            self.ended_ms,
            self.wanted.asked,
            self.wanted.digest,
            self.wanted.rules,
            self.problem,
            self.result if whole else None,
        )


class WhatIfService:
    """One for each server. Lives on the event loop."""

    def __init__(self, backend: Backend, command: Sequence[str] = COMMAND) -> None:
        self._backend, self._command = backend, tuple(command)
        self._labs: dict[str, _Lab] = {}
        self._worker: asyncio.Task[None] | None = None
        self._closed = False

    def check(self, asked: api.WhatIfAsked, after: ClusterConfig | None = None) -> Wanted:
        """Return a question that can be worked out; for a thread, for the rules may be long.

        Args:
            after: rules to be tried, where they are not said as changes.
        Raises: ApiError that names what is wrong.
        """
        base, now_ms = self._backend.state.config, self._backend.clock.unix_ms()
        if too_much := list(_beyond(asked)):
            raise invalid(too_much)
        try:
            changed = with_changes(base, asked.set) if after is None else after
            if asked.nodes:
                node_change(asked.nodes)
            words = asked.policies or ["as_is"]
            variants = tuple(msgspec.structs.replace(variant(w, changed), name=_named(w, asked)) for w in words)
        except InvalidInput as error:
            raise invalid(list(error.problems) or [Problem("bad_value", "set", error.message)]) from error
        try:
            since_ms = now_ms - parse_duration_ms(asked.since) if asked.since else 0
        except (ValueError, OverflowError):
            text = f"since is '{asked.since[:40]}', expected a duration such as 30d"
            raise invalid([Problem("bad_value", "since", text, asked.since[:40])]) from None
        if not asked.nodes and all(one.config == base and one.knows == "declared" for one in variants):
            raise invalid([Problem("bad_value", "set", "nothing is different: give set, policies or nodes")])
        return Wanted(asked, base, variants, [_rules(base, one) for one in variants], digest(base), since_ms)

    def begin(self, wanted: Wanted, user: str) -> api.WhatIfView:
        """Put a question in the queue. Raises: ApiError when that is full, or has enough of the user's."""
        self._forget()
        waiting = [lab for lab in self._labs.values() if lab.state in ("queued", "running")]
        hint = "wait for one of them, or cancel it"
        if len([lab for lab in waiting if lab.user == user]) >= QUEUED_PER_USER:
            raise ApiError("too_many_requests", f"{QUEUED_PER_USER} of your what-ifs are not done yet", hint=hint)
        if len(waiting) >= QUEUED_MAX:
            raise ApiError("too_many_requests", f"{QUEUED_MAX} what-ifs are not done yet", hint=hint)
        if self._closed:
            raise ApiError("unavailable", "the server is ending")
        lab = _Lab(wanted, user, self._backend.clock.unix_ms())
        self._labs[lab.id] = lab
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return lab.view()

    def views(self) -> list[api.WhatIfView]:
        """Return all that is kept, the newest first, without results."""
        self._forget()
        return [lab.view(whole=False) for lab in reversed(self._labs.values())]

    def view(self, lab_id: str) -> api.WhatIfView:
        """Raises: ApiError when it is not kept."""
        return self._lab(lab_id).view()

    def owner(self, lab_id: str) -> str:
        """Return whose it is. Raises: ApiError when it is not kept."""
        return self._lab(lab_id).user

    def cancel(self, lab_id: str) -> api.WhatIfView:
        """End one that is not done; one that is done is forgotten. Raises: ApiError when it is not kept."""
        lab = self._lab(lab_id)
        if lab.state in ("queued", "running"):
            lab.cancelled = True
            lab.state, lab.ended_ms = "cancelled", self._backend.clock.unix_ms()
            if lab.process is not None:
                lab.process.kill()
        else:
            del self._labs[lab_id]
        return lab.view()

    def close(self) -> None:
        """End the process, busy or not."""
        self._closed = True
        for lab in self._labs.values():
            lab.cancelled = True
            if lab.process is not None:
                lab.process.kill()

    def _lab(self, lab_id: str) -> _Lab:
        self._forget()
        lab = self._labs.get(lab_id)
        if lab is None:
            hint = "results are kept for an hour, and not over a restart: ask anew"
            raise ApiError("not_found", f"there is no what-if '{lab_id[:40]}'", hint=hint)
        return lab

    def _forget(self) -> None:
        now_ms = self._backend.clock.unix_ms()
        over = [lab for lab in self._labs.values() if lab.state not in ("queued", "running")]
        for number, lab in enumerate(reversed(over)):
            if number >= KEPT_MAX or now_ms > lab.ended_ms + KEPT_MS:
                del self._labs[lab.id]

    async def _work(self) -> None:
        """Work out what is queued, one after the other."""
        while lab := next((lab for lab in self._labs.values() if lab.state == "queued"), None):
            lab.state = "running"
            problem, result = "", None
            try:
                result = await asyncio.to_thread(self._answer, lab)
            except ApiError as error:
                problem = error.details.title
            except Exception as error:  # noqa: BLE001 - the next one shall be worked out all the same
                log.warning("a what-if was not worked out", extra={"error": repr(error)})
                problem = "something went wrong in the server"
            if lab.cancelled:
                continue
            lab.state, lab.problem, lab.result = ("failed" if problem else "done"), problem, result
            lab.progress, lab.ended_ms = 1.0, self._backend.clock.unix_ms()

    # In a thread.

    def _answer(self, lab: _Lab) -> WhatIfResult:
        """Raises: ApiError when it cannot be worked out."""
        process = subprocess.Popen(  # noqa: S603 - this program itself
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, cwd=starts.HOME
        )
        lab.process = process
        watchdog = threading.Timer(PATIENCE_S, process.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            if lab.cancelled or self._closed:
                raise ApiError("unavailable", "it was cancelled")
            with contextlib.suppress(BrokenPipeError):  # it has said why
                self._ask(process, lab)
            return _answered(process, lab)
        finally:
            watchdog.cancel()
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    stream.close()  # type: ignore[union-attr]
            lab.process = None

    def _ask(self, process: "subprocess.Popen[bytes]", lab: _Lab) -> None:
        last = self._backend.durable_seq
        first = max(0, last - RECORDS_MAX)
        specs = tuple(node.spec for node in self._backend.state.nodes.copy().values()) if first else ()
        wanted = lab.wanted
        question = LabQuestion(wanted.base, wanted.variants, wanted.asked.nodes, wanted.since_ms, specs=specs)
        encode = msgspec.msgpack.Encoder().encode
        write_frame(process.stdin, encode(question))  # type: ignore[arg-type]
        for batch in self._batches(first, last):
            write_frame(process.stdin, batch)  # type: ignore[arg-type]
            lab.progress = min(SHARE_READING, lab.progress + SHARE_READING * BATCH / max(1, last - first))
        write_frame(process.stdin, encode([]))  # type: ignore[arg-type]

    def _batches(self, after: int, last: int) -> Iterator[bytes]:
        """Yield encoded records; half of the time belongs to others."""
        encode = msgspec.msgpack.Encoder().encode
        while after < last:
            begun = time.monotonic()
            records = self._backend.log.records(after, BATCH)
            if not records:
                return
            after = records[-1].seq
            yield encode(records)
            time.sleep(time.monotonic() - begun)


def _answered(process: "subprocess.Popen[bytes]", lab: _Lab) -> WhatIfResult:
    decoder = msgspec.msgpack.Decoder(LabAnswer)
    while (body := read_frame(process.stdout)) is not None:  # type: ignore[arg-type]
        found: LabAnswer = decoder.decode(body)
        if isinstance(found, LabProgress):
            lab.progress = SHARE_READING + (1 - SHARE_READING) * found.share
        elif isinstance(found, LabFailed):
            raise ApiError("unavailable", found.text)
        else:
            return found
    raise ApiError("unavailable", "it took more time or memory than a what-if may; ask for a shorter time")


def _beyond(asked: api.WhatIfAsked) -> Iterator[Problem]:
    for field, given, most in (("policies", asked.policies, VARIANTS_MAX), ("set", asked.set, CHANGES_MAX)):
        if len(given) > most:
            yield Problem("too_many", field, f"{field} has {len(given)} entries, expected at most {most}")
    for field, text in (("policies", "".join(asked.policies)), ("nodes", asked.nodes), ("since", asked.since)):
        if len(text) > TEXT_MAX:
            yield Problem("too_long", field, f"{field} has {len(text)} characters, expected at most {TEXT_MAX}")


def _named(words: str, asked: api.WhatIfAsked) -> str:
    """Return a short name of a variant."""
    parts = [] if words == "as_is" else [words]
    parts += [*asked.set[:3], *([f"and {len(asked.set) - 3} more changes"] if len(asked.set) > 3 else [])]
    return ", ".join([*parts, *([f"nodes {asked.nodes}"] if asked.nodes else [])]) or "as declared"


def _rules(base: ClusterConfig, one: Variant) -> api.WhatIfRules:
    """Return a variant as a change of the configuration, where the words of `set` can say it."""
    edits = diff(base, one.config)
    words = [f"{edit.path}={edit.new}" for edit in edits]
    try:
        sayable = with_changes(base, words) == one.config
    except InvalidInput:
        sayable = False
    return api.WhatIfRules(one.name, words if sayable else [], [edit.text() for edit in edits])
