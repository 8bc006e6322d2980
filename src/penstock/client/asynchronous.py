"""The asynchronous client: the methods of `Client`, for programs that run an event loop.

Theory. Each request runs on a worker thread with a connection of its own, of a small bounded pool: so the rules of
trust (proof of the server, TLS, where a token may go) and of repeating are those of the synchronous client, by the same
code. A task that is cancelled breaks its connection off, so that the thread is free for the next request.
"""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

from penstock.api import types as api
from penstock.client.async_handles import AsyncJob, AsyncJobs, as_completed, mapped
from penstock.client.bulk import MapPlan
from penstock.client.client import PATIENCE_S, Client, Command, Requests
from penstock.client.handles import Job, Jobs
from penstock.client.http import ApiClient
from penstock.client.requests import CallFields, JobFields
from penstock.core.model.errors import InvalidInput
from penstock.core.model.events import Record

P = ParamSpec("P")
T = TypeVar("T")
CONNECTIONS = 4


def _later(
    method: Callable[Concatenate[Any, P], T],
) -> "Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]":
    """Return a method of `ApiClient` as one of `AsyncClient`."""

    async def call(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(lambda client: method(client, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


class AsyncClient:
    """An asynchronous client: each method is that of `Client`, awaited. Use as an asynchronous context manager.

    Up to `connections` requests go at once, others wait for one of these. Every task of one event loop may use it.
    """

    def __init__(self, client: Client, *, connections: int = CONNECTIONS) -> None:
        if connections < 1:
            raise InvalidInput(f"connections is {connections}, expected at least 1")
        self._client = client
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix="penstock-client")
        self._lock = threading.Lock()
        self._idle: list[Client] = []
        self._busy: set[Client] = set()
        self._closed = False

    @classmethod
    def connect(
        cls,
        url: str = "",
        *,
        data: Path | str | None = None,
        token: str | None = None,
        ca: Path | None = None,
        patience_s: float = PATIENCE_S,
        connections: int = CONNECTIONS,
    ) -> Self:
        """Return a client of the server that the command line would talk to, as `Client.connect`; it sends nothing."""
        client = Client.connect(url, data=data, token=token, ca=ca, patience_s=patience_s)
        return cls(client, connections=connections)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End its requests and close its connections; jobs go on."""
        with self._lock:
            self._closed = True
            busy, idle, self._idle = list(self._busy), self._idle, []
        for one in busy:
            one.interrupt()
        for one in idle:
            one.close()
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        await asyncio.to_thread(self._client.close)

    async def run(self, work: Callable[[Client], T]) -> T:
        """Return what `work` returns, done on a worker thread with a connection of its own."""
        taken: list[Client] = []

        def on_thread() -> T:
            client = self._take()
            taken.append(client)
            try:
                return work(client)
            finally:
                self._give_back(client, taken)

        if self._closed:
            raise InvalidInput("this client was closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, on_thread)
        except asyncio.CancelledError:
            with self._lock:
                for client in taken:
                    client.interrupt()
            raise

    def _take(self) -> Client:
        with self._lock:
            client = self._idle.pop() if self._idle else self._client.twin()
            self._busy.add(client)
            return client

    def _give_back(self, client: Client, taken: list[Client]) -> None:
        with self._lock:
            taken.clear()  # the next one to have it must not be cancelled with this one
            self._busy.discard(client)
            if not client.interrupted and not self._closed:
                self._idle.append(client)
                return
        client.close()

    # Submits and waits.

    @overload
    async def submit(self, what: Requests, *, idempotency_key: str | None = None) -> api.SubmitAnswer: ...
    @overload
    async def submit(
        self, what: Path, *, idempotency_key: str | None = None, **fields: Unpack[JobFields]
    ) -> AsyncJobs[None]: ...
    @overload
    async def submit(
        self, what: Command, *, array: int | str, idempotency_key: str | None = None, **fields: Unpack[JobFields]
    ) -> AsyncJobs[None]: ...
    @overload
    async def submit(
        self, what: Command, *, idempotency_key: str | None = None, **fields: Unpack[JobFields]
    ) -> AsyncJob[None]: ...
    @overload
    async def submit(
        self,
        what: Callable[..., T],
        *arguments: Any,
        python: str | None = None,
        idempotency_key: str | None = None,
        **fields: Unpack[CallFields],
    ) -> AsyncJob[T]: ...
    async def submit(self, what: Any, *arguments: Any, idempotency_key: str | None = None, **fields: Any) -> Any:
        """Submit a function, a command, a job file, or plain data, as `Client.submit`."""
        made: Any = await self.run(
            lambda client: client.submit(what, *arguments, idempotency_key=idempotency_key, **fields)
        )
        if isinstance(made, Job):
            return AsyncJob(self, made)
        return AsyncJobs(self, [AsyncJob(self, job) for job in made]) if isinstance(made, Jobs) else made

    async def map(
        self,
        function: Callable[..., T],
        *iterables: Iterable[Any],
        chunk_size: int = 1,
        ahead: int = 1_000,
        timeout: float | None = None,
        python: str | None = None,
        **fields: Unpack[CallFields],
    ) -> AsyncIterator[T]:
        """Yield what a function returns for each item, in order, as `Client.map`; begun by the first `async for`."""
        plan = MapPlan(function, iterables, chunk_size=chunk_size, ahead=ahead, python=python, fields=fields)
        async for value in mapped(self, plan, timeout):
            yield value

    async def handle(self, job: int | api.JobRef) -> AsyncJob[None]:
        """Return the handle of a job."""
        return AsyncJob(self, await self.run(lambda client: client.handle(job)))

    async def handles(self, jobs: Iterable[int | api.JobRef]) -> AsyncJobs[None]:
        """Return the handles of jobs."""
        found = await self.run(lambda client: list(client.handles(jobs)))
        return AsyncJobs(self, [AsyncJob(self, job) for job in found])

    async def wait(self, jobs: Iterable[AsyncJob[Any]], timeout: float | None = None) -> None:
        """Return when all jobs have ended. Raises: TimeoutError when not all have after `timeout` seconds."""
        async for _ in self.as_completed(jobs, timeout):
            pass

    def as_completed(self, jobs: Iterable[AsyncJob[T]], timeout: float | None = None) -> AsyncIterator[AsyncJob[T]]:
        """Yield each job when it has ended. Raises: TimeoutError when not all have after `timeout` seconds."""
        return as_completed(self, list(jobs), timeout)

    async def all_events(self) -> AsyncIterator[Record]:
        """Yield the whole log."""
        batch, after = await self.events_after()
        while batch:
            for record in batch:
                yield record
            batch, after = await self.events_after(after)

    # The operations of the API.

    plan = _later(ApiClient.plan)
    declare_snapshot = _later(ApiClient.declare_snapshot)
    send_chunks = _later(ApiClient.send_chunks)
    send_folder = _later(Client.send_folder)
    job_schema = _later(ApiClient.job_schema)
    etas = _later(ApiClient.etas)
    timeline = _later(ApiClient.timeline)
    cluster_series = _later(ApiClient.cluster_series)
    eta_calibration = _later(ApiClient.eta_calibration)
    jobs = _later(ApiClient.jobs)
    listed = _later(ApiClient.listed)
    job = _later(ApiClient.job)
    explain = _later(ApiClient.explain)
    cancel = _later(ApiClient.cancel)
    act = _later(ApiClient.act)
    outputs = _later(ApiClient.outputs)
    logs = _later(ApiClient.logs)
    search_log = _later(ApiClient.search_log)
    attempts = _later(ApiClient.attempts)
    job_eta = _later(ApiClient.job_eta)
    diagnosis = _later(ApiClient.diagnosis)
    series = _later(ApiClient.series)
    reported = _later(ApiClient.reported)
    checkpoint = _later(ApiClient.checkpoint)
    job_events = _later(ApiClient.job_events)
    cluster = _later(ApiClient.cluster)
    nodes = _later(ApiClient.nodes)
    devices = _later(ApiClient.devices)
    device = _later(ApiClient.device)
    node = _later(ApiClient.node)
    node_list = _later(ApiClient.node_list)
    drain = _later(ApiClient.drain)
    declare_node = _later(ApiClient.declare_node)
    joined_nodes = _later(ApiClient.joined_nodes)
    remove_node = _later(ApiClient.remove_node)
    close_device = _later(ApiClient.close_device)
    open_device = _later(ApiClient.open_device)
    queues = _later(ApiClient.queues)
    alerts = _later(ApiClient.alerts)
    cycle = _later(ApiClient.cycle)
    defrag = _later(ApiClient.defrag)
    usage = _later(ApiClient.usage)
    usage_table = _later(ApiClient.usage_table)
    waste = _later(ApiClient.waste)
    waste_table = _later(ApiClient.waste_table)
    bills = _later(ApiClient.bills)
    accounts = _later(ApiClient.accounts)
    add_credit = _later(ApiClient.add_credit)
    journal = _later(ApiClient.journal)
    reverse = _later(ApiClient.reverse)
    invoices = _later(ApiClient.invoices)
    invoice_document = _later(ApiClient.invoice_document)
    issue_invoice = _later(ApiClient.issue_invoice)
    pay_invoice = _later(ApiClient.pay_invoice)
    correct_invoice = _later(ApiClient.correct_invoice)
    pools = _later(ApiClient.pools)
    quotas = _later(ApiClient.quotas)
    config = _later(ApiClient.config)
    configure = _later(ApiClient.configure)
    me = _later(ApiClient.me)
    login_link = _later(ApiClient.login_link)
    create_token = _later(ApiClient.create_token)
    tokens = _later(ApiClient.tokens)
    revoke_token = _later(ApiClient.revoke_token)
    set_secret = _later(ApiClient.set_secret)
    secrets = _later(ApiClient.secrets)
    remove_secret = _later(ApiClient.remove_secret)
    notifications = _later(ApiClient.notifications)
    set_notification = _later(ApiClient.set_notification)
    remove_notification = _later(ApiClient.remove_notification)
    test_notification = _later(ApiClient.test_notification)
    schedules = _later(ApiClient.schedules)
    schedule = _later(ApiClient.schedule)
    set_schedule = _later(ApiClient.set_schedule)
    act_on_schedule = _later(ApiClient.act_on_schedule)
    remove_schedule = _later(ApiClient.remove_schedule)
    snapshots = _later(ApiClient.snapshots)
    remove_snapshot = _later(ApiClient.remove_snapshot)
    rotate_secret_key = _later(ApiClient.rotate_secret_key)
    events = _later(ApiClient.events)
    events_after = _later(ApiClient.events_after)
    events_of = _later(ApiClient.events_of)
    healthy = _later(ApiClient.healthy)
    begin_whatif = _later(ApiClient.begin_whatif)
    whatif = _later(ApiClient.whatif)
    whatifs = _later(ApiClient.whatifs)
    cancel_whatif = _later(ApiClient.cancel_whatif)
