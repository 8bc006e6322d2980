"""One thing that is made ready on a node for replicas that wait for it, and who makes it."""

import abc
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple, Protocol

from msgspec.structs import fields, replace

from penstock.core.messages.orders import StartReplica
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.errors import PenstockError
from penstock.engines.agent.fetching import Fetching
from penstock.engines.agent.programs import Ended, Program, Programs
from penstock.engines.processes.accounts import account_of
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.spawn import base_environment

SAID_KEPT_BYTES = 65_536
"""Of what a preparation has printed: for replicas that join it later."""
CAPTURED_MAX_BYTES = 4 * 2**20
TIME_OVER_CODE = 124
"""As that of the program `timeout`."""
LIMIT_S = 3_600.0
"""Of a preparation, where the order names no limit."""
_DEFAULTS = {field.name: field.default for field in fields(StartReplica)}


class NotPrepared(PenstockError):
    """Something that a replica needs cannot be had.

    Args:
        exit_code: of what failed, where that is the job's own fault: another node would not mend it.
    """

    code = "not_prepared"

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Cancelled(Exception):
    """All replicas that waited for a preparation were stopped."""


class Contribution(NamedTuple):
    """What the start of each replica gets from a preparation."""

    env: tuple[tuple[str, str], ...] = ()
    defaults: tuple[tuple[str, str], ...] = ()
    """Variables for jobs that do not set them."""
    path: tuple[str, ...] = ()
    """Folders in which programs are looked for first."""
    prefix: tuple[str, ...] = ()
    """Words before the command; `{replica}` in them is the replica's name."""
    workdir: str = ""
    container: str = ""
    """How its container is made: `StartReplica.container`."""
    shown: tuple[str, ...] = ()
    """Folders that were made ready, which a container sees read-only."""

    def applied(self, order: StartReplica, field: str) -> StartReplica:
        """Return an order with this in it, and without the need that it meets."""
        env = {**dict(self.defaults), **dict(order.env), **dict(self.env)}
        if self.path:
            env["PATH"] = os.pathsep.join([*self.path, env.get("PATH") or os.environ.get("PATH") or os.defpath])
        prefix = tuple(word.replace("{replica}", str(order.key)) for word in self.prefix)
        changed: dict[str, Any] = {field: _DEFAULTS[field], "workdir": self.workdir or order.workdir}
        changed["container"] = self.container or order.container
        changed["shown"] = (*order.shown, *self.shown)
        return replace(order, env=tuple(env.items()), command=(*prefix, *order.command), **changed)


class Done(NamedTuple):
    """How a program of a preparation ended, and what it printed where that was asked for."""

    ended: Ended
    output: bytes

    @property
    def ok(self) -> bool:
        return self.ended.code == 0


class Preparer(abc.ABC):
    """Makes ready what one field of orders names."""

    @abc.abstractmethod
    def key(self, order: StartReplica) -> str:
        """Return what exactly is prepared: replicas with equal keys, of one account, share it. On the agent's loop."""

    @abc.abstractmethod
    def prepare(self, job: "Preparation") -> Contribution:
        """Prepare it. In a thread. Raises: NotPrepared; PenstockError; OSError; Cancelled."""

    def used(self, made: Contribution, users: Sequence[str]) -> None:
        """Note that these replicas use what was prepared: more of them may have come meanwhile. In a thread."""
        return

    def left(self, living: AbstractSet[str]) -> None:
        """Clean up what none of these replicas can use any more. In a thread, beside others."""
        return


class Preparing(Protocol):
    """What `Preparations` does for each of its preparations."""

    node: str
    data: DataFolder
    programs: Programs
    fetching: Fetching

    def waiting_for(self, job: "Preparation") -> Sequence[ReplicaKey]:
        """Return the replicas that wait for something."""
        ...

    def living(self) -> AbstractSet[str]:
        """Return the replicas that may use something that was prepared, those that wait among them."""
        ...

    def first_of_jobs(self, job: "Preparation") -> Iterable[StartReplica]:
        """Return the first replica of each job that waits for something."""
        ...

    def add_to_output(self, order: StartReplica, data: bytes) -> None:
        """Add to the output of a replica; lost where that cannot be done."""
        ...


class Wanted(NamedTuple):
    field: str
    key: str
    account: str


class Preparation:
    """One thing that is being prepared, for one or more replicas."""

    def __init__(self, wanted: Wanted, order: StartReplica, parts: Preparing) -> None:
        self.wanted, self.order = wanted, order
        """`order` is that of the first replica that waits."""
        self.account, self.data, self.node = order.account, parts.data, parts.node
        self.fetching = parts.fetching
        self._parts = parts
        self.waiting: dict[ReplicaKey, StartReplica] = {order.key: order}
        """With the lock of `Preparations`."""
        self._writing = threading.Lock()
        self._said = bytearray()
        self._shown_to: set[ReplicaKey] = set()
        self.cancelled = False
        limit_s = order.preparing_limit_ms / 1000 or LIMIT_S
        self._limit_s, self._due_s = limit_s, time.monotonic() + limit_s

    @property
    def users(self) -> tuple[str, ...]:
        """Return the replicas that wait now."""
        return tuple(map(str, self._parts.waiting_for(self)))

    def living(self) -> AbstractSet[str]:
        """Return the replicas whose things have to stay, of all jobs."""
        return self._parts.living()

    def check(self) -> None:
        """Raises: Cancelled when all replicas that waited were stopped; NotPrepared when its time is over."""
        if self.cancelled:
            raise Cancelled
        if time.monotonic() > self._due_s:
            raise NotPrepared(f"it took longer than {self._limit_s:g} s", TIME_OVER_CODE)

    @property
    def grouped(self) -> bool:
        """Whether boxes of this node are control groups."""
        return self._parts.programs.grouped

    def environment(self) -> dict[str, str]:
        """Return the environment of programs of the job as far as it is known before they start: without ranks."""
        account = account_of(self.account) if self.account else None
        return {**base_environment(os.environ, account), **dict(self.order.env)}

    def run(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        workdir: str = "/",
        account: str | None = None,
        visible: bool = True,
        capture: bool = False,
    ) -> Done:
        """Run a program to its end, in a box of its own, as the job's account.

        Args:
            env: its environment; by default that of the job.
            account: another one that runs it; '' for the agent's.
            visible: what it prints is added to the outputs of the replicas that wait.
            capture: it is returned, too: the first `CAPTURED_MAX_BYTES`.
        Raises: Cancelled; NotPrepared when the time of the preparation is over: nothing of it is left then; OSError.
        """
        captured = bytearray()

        def said(data: bytes) -> None:
            if visible:
                self._write(data)
            if capture:
                captured.extend(data[: CAPTURED_MAX_BYTES - len(captured)])

        self.check()
        who = self.account if account is None else account
        environment = self.environment() if env is None else env
        limits, workload = self.order.ask.host, self.order.workload_class
        program = Program(command, environment, workdir, who, limits, workload)
        ended = self._parts.programs.run(program, said, self._over)
        if ended is None:
            self.check()
            raise Cancelled
        return Done(ended, bytes(captured))

    def _over(self) -> bool:
        return self.cancelled or time.monotonic() > self._due_s

    def say(self, text: str) -> None:
        """Add a line of Penstock's own to the outputs of the replicas that wait."""
        begun = self._said and not self._said.endswith(b"\n")
        self._write(b"\n" * bool(begun) + f"penstock: {text}\n".encode())

    def _write(self, data: bytes) -> None:
        """Add to the output of the first waiting replica of each job; one that came later gets what was before, too."""
        with self._writing:
            self._said += data
            del self._said[:-SAID_KEPT_BYTES]
            for order in self._parts.first_of_jobs(self):
                new = order.key not in self._shown_to
                self._shown_to.add(order.key)
                self._parts.add_to_output(order, bytes(self._said) if new else data)
