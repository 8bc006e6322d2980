"""A whole server in this process: the real control loop, log and HTTP API on loopback; nodes and time are virtual.

Commands are parsed, not run (`engine.behaviour_of`), and end as `advance` lets time pass: an hour of a cluster takes
a few seconds, and goes the same way each time. It has no certificates, agents and processes: `penstock up` has them.
"""

import contextlib
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from penstock.bootstrap import simulated_of
from penstock.client import Client
from penstock.control import messages as msg
from penstock.control.controller import Controller
from penstock.control.metrics import MemoryMetrics
from penstock.control.service import ControlService, deliver_here
from penstock.core.config.cluster import parse_cluster
from penstock.core.model.errors import InvalidInput
from penstock.core.model.events import Record
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.core.model.resources import Resources
from penstock.core.model.words import counted
from penstock.core.order.extension import OrderPolicy, registry
from penstock.engines.local.nodes import specs
from penstock.loopthread import LoopThread
from penstock.security.vault import Vault
from penstock.server.app import create_app
from penstock.server.backend import Backend, deliver_on
from penstock.server.http.auth import LocalTokens
from penstock.server.http.limits import Limits
from penstock.server.http.listener import Listener
from penstock.server.http.transport import Transport, listen, names_of_server
from penstock.server.routes.outputs import Outputs
from penstock.server.services.billing import BillingService
from penstock.server.services.estimates import EstimateService
from penstock.server.services.history import HistoryService
from penstock.server.services.notifying.service import NotificationService
from penstock.server.services.signin.service import SignInService
from penstock.server.services.whatif import WhatIfService
from penstock.store.folder_snapshots import FolderSnapshots
from penstock.store.sqlite import SqliteStore
from penstock.testing.builders import GIB, cluster_file
from penstock.testing.engine import BehaviourOf, FakeEngine, behaviour_of
from penstock.web.pages import WebPages

HOST = Resources(cpu_milli=64_000, memory_bytes=512 * GIB, storage_bytes=1024 * GIB)
"""Capacity of a node whose file does not set it."""
ANSWER_S = 30.0
"""Real time in which the control loop answers, or has failed."""
LOOK_S = 0.2


class NoOutputs:
    """Outputs of programs that print and report nothing."""

    def listed(self, job_id: JobId) -> list[tuple[AttemptNumber, Rank, int]]:
        return []

    def read(
        self, job_id: JobId, attempt: AttemptNumber, rank: Rank, offset: int, limit: int
    ) -> tuple[int, bytes] | None:
        return None

    def size(self, job_id: JobId, attempt: AttemptNumber, rank: Rank) -> int | None:
        return None

    def read_report(
        self, job_id: JobId, attempt: AttemptNumber, rank: Rank, offset: int, limit: int
    ) -> tuple[int, bytes] | None:
        return None


class InProcessServer:
    """Use as a context manager: it answers inside, its nodes are ready, and nothing is left after.

    Args:
        cluster: a cluster file as plain data; by default two nodes n1, n2 with four simulated devices each.
        policies: order policies of your own, which its queues name as `ext:NAME`.
        behaviour: returns the behaviour of a replica's program.
        outputs: what programs have printed and reported; by default nothing.
    Raises: InvalidInput naming every problem of the cluster file.
    """

    def __init__(
        self,
        cluster: Mapping[str, Any] | None = None,
        *,
        policies: Iterable[OrderPolicy] = (),
        behaviour: BehaviourOf = behaviour_of,
        outputs: Outputs | None = None,
    ) -> None:
        self._outputs = NoOutputs() if outputs is None else outputs
        self._policies = registry(policies)
        declared, problems = parse_cluster(cluster_file() if cluster is None else cluster, self._policies)
        if problems:
            raise InvalidInput(f"the cluster file has {counted(len(problems), 'problem')}", problems=problems)
        nodes = specs(declared.nodes, HOST, (), simulated_of(declared.nodes))
        self.engine = FakeEngine(*nodes, behaviour=behaviour)
        self._config = declared.config
        self._fault: BaseException | None = None
        self._submitted = 0
        self._loop = LoopThread("penstock-testing")

    def __enter__(self) -> "InProcessServer":
        with contextlib.ExitStack() as ending:
            root = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="penstock-testing-")))
            self._store = SqliteStore(root / "log")
            ending.callback(self._store.close)
            self._open(root)
            ending.callback(self._loop.stop)
            self._loop.start()
            aside = ending.enter_context(ThreadPoolExecutor(thread_name_prefix="penstock-testing"))
            self._loop.call(lambda: self._loop.loop.set_default_executor(aside))
            self._serve(ending)
            ending.callback(self.service.stop)
            self.service.start()
            self.send_notifications()
            ending.callback(self.engine.stop)
            self.engine.settle = self.settle
            self.engine.start(self.service)
            self.client = Client.at(self.url, token=self.token, insecure=True)
            ending.callback(self.client.close)
            self._ending = ending.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def _open(self, root: Path) -> None:
        """Begin the log and build the control loop."""
        controller = Controller(self._store, self.engine.clock, name="testing", check_invariants=True)
        controller.open(self._config)
        self._metrics = MemoryMetrics()
        self.service = ControlService(
            controller,
            self._store,
            self.engine,
            self.engine.clock,
            deliver=deliver_on(self._loop.loop),
            deliver_reports=deliver_here,
            on_records=self._publish,
            on_fault=self._on_fault,
            policies=self._policies,
            metrics=self._metrics,
        )
        self._vault = Vault(root / "secrets.key")
        self._snapshots = FolderSnapshots(root / "folders", self.engine.clock.unix_ms)
        self._tokens = LocalTokens(root / "tokens.json")
        self._tokens.ensure_local(root / "token")
        self.token = (root / "token").read_text(encoding="ascii").strip()
        """Of an administrator."""

    def _serve(self, ending: contextlib.ExitStack) -> None:
        """Answer over HTTP until `ending`."""
        self._backend = Backend(
            self.service,
            self._store,
            self.engine.clock,
            self._tokens,
            self._outputs,
            self.engine.connected,
            "testing",
            vault=self._vault,
            metrics=self._metrics,
            snapshots=self._snapshots,
        )
        self._backend.durable_seq = self.service.controller.state.seq
        ending.callback(self._backend.pools.close)
        estimates = EstimateService(self._backend)
        ending.callback(estimates.close)
        billing, transport = BillingService(self._backend, self._store), Transport()
        self._history, socket = HistoryService(self._backend, self._store), listen(transport)
        self.url = f"http://127.0.0.1:{socket.getsockname()[1]}"
        self._lab = WhatIfService(self._backend)
        ending.callback(lambda: self._loop.call(self._lab.close))
        self._notifications = NotificationService(self._backend, self._store, self.url)
        ending.callback(self._notifications.close)
        self._signins = SignInService(self._backend)
        ending.callback(self._signins.close)
        app = create_app(
            self._backend, estimates, billing, self._history, self._notifications, self._lab, self._signins
        )
        listener = Listener(WebPages(app, names_of_server(transport)), None, Limits().bounds())
        served = self._loop.run(listener.serve(sockets=[socket]))

        def end() -> None:
            self._loop.call(self._backend.closing.set)
            self._loop.call(lambda: self._backend.committed(()))  # followers of the log look up
            listener.ask_to_end()
            served.result(ANSWER_S)

        ending.callback(end)

    def submit(self, job: Mapping[str, Any]) -> int:
        """Submit one job (plain data, as in a job file) and return its number, once a cycle has seen it."""
        return self.submit_all(job)[0]

    def submit_all(self, request: Mapping[str, Any]) -> list[int]:
        """Submit the jobs of a file and return their numbers in its order; a job of an array has one each."""
        self._submitted += 1
        made = self.client.submit_request(request, idempotency_key=f"testing-{self._submitted}").jobs
        self.settle()
        return [job.id for job in made]

    def advance(self, seconds: float) -> None:
        """Let time pass: due events happen one moment after the other, each planned and answered before the next."""
        self.engine.advance(round(seconds * 1000))
        self.settle()
        self._history.catch_up()

    def send_notifications(self) -> None:
        """Send the notifications that are due by now, and return when they were taken or refused."""

        async def sent() -> None:
            await self._notifications.look()
            await self._notifications.settle()

        self._loop.run(sent()).result(ANSWER_S)

    def settle(self) -> None:
        """Return when every request is decided, planned and started. No time passes.

        Raises: RuntimeError when the control loop has stopped.
        """
        while True:
            said = self.engine.said
            answered = threading.Event()
            self.service.ask(msg.TimePassed(), lambda _, done=answered: done.set())  # type: ignore[misc]
            self._await(answered)
            if self.service.at_rest and self.engine.said == said:
                return

    def _await(self, answered: threading.Event) -> None:
        deadline = time.monotonic() + ANSWER_S
        while not answered.wait(LOOK_S):
            if self._fault is not None or time.monotonic() > deadline:
                raise RuntimeError("the control loop does not answer") from self._fault

    def _publish(self, records: tuple[Record, ...]) -> None:
        self._loop.call(lambda: self._backend.committed(records))

    def _on_fault(self, error: BaseException) -> None:
        self._fault = error
