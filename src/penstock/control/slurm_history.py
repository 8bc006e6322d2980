"""What happened in a Slurm cluster before the server began, written into its log with the times at which it happened.

An empty log begins where the history does; a log from an earlier run continues after its last record. So estimates,
bills and replays cover the time before the server, too. One commit writes what happened in many seconds: nobody waits
for it.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import groupby
from typing import NamedTuple, Protocol

import msgspec

from penstock.control import messages as msg
from penstock.control.controller import Controller
from penstock.control.slurm import SLURM, live_jobs, named
from penstock.core.messages.reports import NodeReport, ReplicaKey, ReplicaSeen
from penstock.core.messages.requests import Refusal, Submit, Submitted
from penstock.core.model.actions import JobChange
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.events import Record
from penstock.core.model.gang import GangAsk
from penstock.core.model.ids import Epoch, JobId, NodeName, Rank
from penstock.core.model.jobs import JobState
from penstock.core.state.state import Image, State
from penstock.engines.slurm.jobs import ask_of, less_of, user_of
from penstock.engines.slurm.lives import Happening, Life, happenings
from penstock.engines.slurm.newjobs import JOB_LABEL, SCHEDULER, new_job, pools_of
from penstock.engines.slurm.nodes import SlurmNode, node_spec
from penstock.engines.slurm.server import LiveJob
from penstock.engines.slurm.standing import INCARNATION
from penstock.engines.slurm.states import exit_of, word_of
from penstock.ports import Clock, EventReader, EventStore, FinishedJob

log = logging.getLogger(__name__)

RECORDS_AT_ONCE = 5_000
ENDED_MAX = 20_000
"""Jobs that have ended and are looked up in a log of before."""
SUBMITS_AT_ONCE = 500


class Store(EventStore, EventReader, Protocol):
    """What is needed of the log."""


class PastClock:
    """The time at which something happened; leases count real time."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self.now_ms = clock, 0

    def unix_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()


class GatheringStore:
    """A store that writes many commits at once: what is not written when it fails is read from Slurm again."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._records: list[Record] = []
        self._finished: list[FinishedJob] = []
        self._epoch = Epoch(0)

    def acquire_epoch(self) -> Epoch:
        self._epoch = self._store.acquire_epoch()
        return self._epoch

    def append(self, records: Sequence[Record], finished: Sequence[FinishedJob], epoch: Epoch) -> None:
        self._records += records
        self._finished += finished
        if len(self._records) >= RECORDS_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered. Raises: StoreError."""
        self._store.append(self._records, self._finished, self._epoch)
        self._records, self._finished = [], []

    def load(self) -> tuple[Image | None, Iterator[Record]]:
        return self._store.load()

    def tail(self, after: int) -> Iterator[Record]:
        return self._store.tail(after)

    def save_snapshot(self, image: Image) -> None:
        self._store.save_snapshot(image)

    def outcomes(self, job_ids: Sequence[JobId]) -> Mapping[JobId, JobState]:
        return self._store.outcomes(job_ids)

    def finished_jobs(self, limit: int, before: JobId | None = None) -> list[FinishedJob]:
        return self._store.finished_jobs(limit, before)


class _Run(msgspec.Struct):
    """A job that has not ended, as the log being written has it."""

    job_id: JobId
    ask: GangAsk
    replicas: tuple[tuple[ReplicaKey, NodeName], ...] = ()


class _Known(NamedTuple):
    """What a log has of jobs."""

    live: Mapping[str, LiveJob]
    ended: Set[str]
    """The labels of those that have ended lately."""

    def has(self, one: Happening) -> bool:
        """Return whether something that happened is in the log."""
        label, line = one.life.label, one.line
        job = self.live.get(label)
        if job is None:
            return label in self.ended
        if one.what == "submitted":
            return True
        if not job.places:
            return 0 < line.end_s * 1000 <= job.ran_before_ms
        begun_s = max((int(place.name) for place in job.places if place.name.isdecimal()), default=0)
        return line.start_s < begun_s or (line.start_s == begun_s and one.what == "started")


class SlurmHistory:
    """Writes the history into a log.

    Args:
        config: put in force as the log begins; None: what the log has.
    Raises: as `Controller.open`.
    """

    def __init__(self, store: Store, clock: Clock, config: ClusterConfig | None, *, name: str) -> None:
        self._store, self._clock, self._declared = GatheringStore(store), PastClock(clock), config
        self._reader: EventReader = store
        self._nodes: Sequence[SlurmNode] = ()
        self._controller = Controller(self._store, self._clock, name=name, shadow=True)
        self._runs: dict[str, _Run] = {}
        self._seq = 0
        self.left_out = 0
        """Starts on nodes that are not there any more."""
        self.last_ms = 0
        """The time of the log's last record; 0: it is empty."""
        self._log = self._known()

    def write(self, lives: Sequence[Life], nodes: Sequence[SlurmNode], now_ms: int) -> int:
        """Write what the log does not have and what happened before now. Returns: how many jobs it is of.

        What happened before the last record, and was not seen then, counts from that record on.
        """
        self._nodes = nodes
        found = [one for one in happenings(lives) if one.time_s * 1000 <= now_ms and not self._log.has(one)]
        if not found:
            return 0
        self._clock.now_ms = max(self.last_ms + 1, found[0].time_s * 1000)
        self._controller.open(self._declared)
        self._adopt()
        pools = pools_of(self._nodes, self._controller.state.config)
        self._introduce()
        for (time_s, what), group in groupby(found, key=lambda one: (one.time_s, one.what)):
            self._clock.now_ms = max(self._clock.now_ms, time_s * 1000)
            if what == "submitted":
                self._submit(list(group), pools)
            elif what == "started":
                for one in group:
                    self._start(one, pools)
            else:
                for one in group:
                    self._end(one)
        self._store.flush()
        if self.left_out:
            log.info("runs on nodes that are not there any more are left out", extra={"runs": self.left_out})
        return len({one.life.label for one in found})

    def _known(self) -> "_Known":
        """Return what the log has of jobs: of those that live, and of the last that have ended."""
        state = State()
        image, tail = self._store.load()
        if image is not None:
            state = State.from_image(image)
            self.last_ms = image.time_ms
        for record in tail:
            state.apply(record)
            self.last_ms = record.time_ms
        live = {job.label: job for job in live_jobs(state)}
        ended = set()
        rows = [row.id for row in self._store.finished_jobs(ENDED_MAX)]
        for at in range(0, len(rows), SUBMITS_AT_ONCE):
            submits = self._reader.submits(rows[at : at + SUBMITS_AT_ONCE])
            ended |= {dict(event.spec.labels).get(JOB_LABEL, "") for event in submits.values()}
        return _Known(live, ended)

    def _adopt(self) -> None:
        for job in live_jobs(self._controller.state):
            places = tuple((place.key, place.node) for place in job.places)
            self._runs[job.label] = _Run(job.job_id, job.ask, places)

    def _introduce(self) -> None:
        pools = self._controller.state.config.pool_by_name
        standing: dict[NodeName, list[ReplicaSeen]] = {}
        for run in self._runs.values():
            for key, node in run.replicas:
                standing.setdefault(node, []).append(ReplicaSeen(key, "running"))
        for listed in self._nodes:
            spec = node_spec(listed, pools)
            self._controller.handle([msg.Hello(spec, INCARNATION)])
            self._report(spec.name, tuple(standing.get(spec.name, ())), whole=True)

    def _report(self, node: NodeName, replicas: tuple[ReplicaSeen, ...], *, whole: bool = False) -> None:
        self._seq += 1
        self._controller.handle([NodeReport(node, INCARNATION, self._seq, inventory=whole, replicas=replicas)])

    def _submit(self, group: Sequence[Happening], pools: Mapping[str, object]) -> None:
        config = self._controller.state.config
        asked: list[tuple[Life, GangAsk]] = []
        requests: list[msg.Request] = []
        for one in group:
            try:
                ask = ask_of(one.line, pools)  # type: ignore[arg-type]
            except ValueError:
                continue
            user = user_of(one.line)
            job = named(new_job(one.line, one.life.label, ask, config), config, user)
            asked.append((one.life, ask))
            requests.append(Submit((job,), user, seen=True))
        replies = self._controller.handle(requests).replies if requests else ()
        for (life, ask), reply in zip(asked, replies, strict=True):
            if isinstance(reply, Submitted):
                self._runs[life.label] = _Run(reply.job_ids[0], ask)

    def _start(self, one: Happening, pools: Mapping[str, object]) -> None:
        run = self._runs.get(one.life.label)
        if run is None or run.replicas:
            return
        try:
            nodes = tuple(NodeName(name) for name in one.line.node_names())
            asks = [ask_of(one.line, pools)]  # type: ignore[arg-type]
        except ValueError:
            return
        while (less := less_of(asks[0], len(asks) - 1)) is not None:
            asks.append(less)
        names = (str(one.line.start_s),) * len(nodes)
        for ask in asks:
            requests: list[msg.Request] = [msg.SeenStart(run.job_id, SCHEDULER, nodes, names)]
            if ask != run.ask:
                change = JobChange(ask=ask)
                requests.insert(0, msg.ChangeJobs("edit", (run.job_id,), SLURM, change, administrator=True))
                run.ask = ask
            reply = self._controller.handle(requests).replies[-1]
            if isinstance(reply, msg.StartNoted):
                keys = [ReplicaKey(run.job_id, reply.attempt, Rank(rank)) for rank in range(len(nodes))]
                run.replicas = tuple(zip(keys, nodes, strict=True))
                for key, node in run.replicas:
                    self._report(node, (ReplicaSeen(key, "running"),))
                return
            assert isinstance(reply, Refusal)
        self.left_out += 1

    def _end(self, one: Happening) -> None:
        run, line = self._runs.get(one.life.label), one.line
        if run is None:
            return
        final = line is one.life.last and line.phase == "ended"
        if word_of(line.state) == "CANCELLED" or (final and not run.replicas):
            self._controller.handle([msg.Cancel(run.job_id, SLURM, f"{word_of(line.state).lower()} in Slurm")])
        info = exit_of(line.state, line.code, line.signal)
        for key, node in run.replicas:
            self._report(node, (ReplicaSeen(key, "exited", exit=info),))
        run.replicas = ()
        if final:
            if run.job_id in self._controller.state.jobs:
                self._controller.handle([msg.Cancel(run.job_id, SLURM, f"{word_of(line.state).lower()} in Slurm")])
            del self._runs[one.life.label]
