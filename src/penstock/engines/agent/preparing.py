"""What replicas need on a node before they start: their folder, an environment, the result of steps.

Theory. An order names what its replica needs, each in a field of its own; a preparer for each field makes it, in the
order of `NEEDS`, for one may need what another has made. What several replicas need is prepared once, in a thread of
its own, and given up when the last of them was stopped. Once a field is met it is emptied, and what came of it is part
of the order: an order without such fields can start. Nothing of this survives the worker but what preparers keep on
the disk: the server orders the start again.
"""

import logging
import os
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Literal

from msgspec.structs import replace

from penstock.core.messages.orders import StartReplica
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.errors import PenstockError
from penstock.core.model.ids import JobId
from penstock.engines.agent.fetching import Fetching
from penstock.engines.agent.parts import NEEDS, Prepared
from penstock.engines.agent.preparation import Cancelled, Contribution, NotPrepared, Preparation, Preparer, Wanted
from penstock.engines.agent.programs import Programs
from penstock.engines.processes.outputs import add
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.spawn import open_output

log = logging.getLogger(__name__)

THREADS_MAX = 512
ACCOUNT_MAX = 64
"""Preparations at once, in all and of one account; further ones wait for one of these to end."""
STOPPED = "stopped before it started"
TITLES = {
    "snapshot": "its folder was not unpacked",
    "inputs": "its inputs are not there",
    "image": "its image cannot be used",
    "python": "its Python environment is not there",
    "setup": "its setup failed",
}
"""By the field, what it means where it cannot be met."""


class Preparations:
    """Prepares what replicas of one node need.

    Args:
        living: replicas of a former worker: what they use stays.
        wake: called when there is something to ask the server, or a result. In threads.
        make: returns the preparer of a field; called when the first order has it.
    """

    def __init__(
        self,
        node: str,
        data: DataFolder,
        programs: Programs,
        living: Iterable[str],
        wake: Callable[[], None],
        make: "Callable[[str, Preparations], Preparer] | None" = None,
    ) -> None:
        self.node, self.data, self.programs, self._wake = node, data, programs, wake
        self._make = make or make_preparer
        self._preparers: dict[str, Preparer] = {}
        self.fetching = Fetching(wake)
        self.done: queue.SimpleQueue[Prepared] = queue.SimpleQueue()
        self._lock = threading.Lock()
        """Of what is to be done: held for moments, the agent's loop takes it."""
        self._living = set(living)
        """Replicas that may use something that was prepared."""
        self._at: dict[ReplicaKey, Preparation] = {}
        """What each replica waits for."""
        self._open: dict[Wanted, Preparation] = {}
        """What further replicas can wait for, too."""
        self._work: deque[Preparation | None] = deque()
        """What to prepare, and None where there is something to clean up."""
        self._outputs: set[ReplicaKey] = set()
        """Replicas whose output was begun here."""
        self._threads = 0
        self._serving: Counter[str] = Counter()
        """Preparations that have a thread, by account."""
        self.says_anew = False
        """A preparer has found out something that the server is told when the node introduces itself."""
        self._beginning = threading.Lock()
        self._begun = False

    # On the agent's loop.

    def start(self, order: StartReplica) -> None:
        """Prepare what a replica needs; `done` gets the order that can start, or the reason why there is none."""
        with self._lock:
            self._living.add(str(order.key))
            self._next(order)
        self._go()

    def cancel(self, key: ReplicaKey) -> bool:
        """Let a replica not start; return False where nothing is being prepared for it any more.

        Else `done` says that it was stopped, once nothing of what was prepared for it alone is left.
        """
        with self._lock:
            job = self._at.get(key)
            if job is None:
                return False
            if len(job.waiting) > 1 and not job.cancelled:
                self._end(job.waiting.pop(key), STOPPED)
            elif not job.cancelled:
                job.cancelled = True
                self._close(job)
        self._wake()
        return True

    def say_anew(self) -> None:
        """Let the node introduce itself again. Any thread."""
        self.says_anew = True
        self._wake()

    def left(self, key: ReplicaKey) -> None:
        """Take note that nothing of a replica is left."""
        with self._lock:
            self._outputs.discard(key)
            if str(key) not in self._living:
                return
            self._living.discard(str(key))
        self.clean()

    def clean(self) -> None:
        """Clean up what nothing can use any more, and what a former worker left."""
        with self._lock:
            if None not in self._work:
                self._work.append(None)
        self._go()

    def _go(self) -> None:
        with self._lock:
            if not self._work or self._threads >= THREADS_MAX:
                return
            self._threads += 1
        threading.Thread(target=self._run, name="penstock-prepare", daemon=True).start()

    # With the lock.

    def _next(self, order: StartReplica) -> None:
        """Let an order wait for what it needs next, or start."""
        field = next((name for name in NEEDS if getattr(order, name)), None)
        if field is None:
            self._at.pop(order.key, None)
            if order.key in self._outputs:  # its folder was marked when its output was begun
                order = replace(order, mark="")
            self.done.put(Prepared(order, (), "", needs=True))
            return
        try:
            if field not in self._preparers:
                self._preparers[field] = self._make(field, self)
            wanted = Wanted(field, self._preparers[field].key(order), order.account)
        except (PenstockError, OSError) as error:
            self._end(order, f"{TITLES[field]}: {error}")
            return
        job = self._open.get(wanted)
        if job is None:
            job = self._open[wanted] = Preparation(wanted, order, self)
            self._work.append(job)
        job.waiting[order.key] = order
        self._at[order.key] = job

    def _take(self) -> Preparation | Literal[False] | None:
        """Return what a thread does next, of an account that may have one more; False: nothing."""
        for index, job in enumerate(self._work):
            if job is None or self._serving[job.account] < ACCOUNT_MAX:
                del self._work[index]
                if job is not None:
                    self._serving[job.account] += 1
                return job
        return False

    def _end(self, order: StartReplica, problem: str, exit_code: int | None = None) -> None:
        self._at.pop(order.key, None)
        self.done.put(Prepared(order, (), problem, exit_code, needs=True))

    def _close(self, job: Preparation) -> None:
        if self._open.get(job.wanted) is job:
            del self._open[job.wanted]

    # In threads.

    def waiting_for(self, job: Preparation) -> list[ReplicaKey]:
        with self._lock:
            return sorted(job.waiting)

    def living(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._living)

    def first_of_jobs(self, job: Preparation) -> list[StartReplica]:
        first: dict[JobId, StartReplica] = {}
        with self._lock:
            for key in sorted(job.waiting):
                first.setdefault(key.job_id, job.waiting[key])
        return list(first.values())

    def add_to_output(self, order: StartReplica, data: bytes) -> None:
        try:
            if order.key not in self._outputs:
                os.close(open_output(self.data, order))
                with self._lock:
                    if str(order.key) in self._living:
                        self._outputs.add(order.key)
            add(self.data.output(order.key), data)
        except OSError as error:
            log.warning("an output was not written", extra={"key": str(order.key), "problem": str(error)})

    def _run(self) -> None:
        while True:
            with self._lock:
                job = self._take()
                if job is False:
                    self._threads -= 1
                    return
            try:
                self._begin()
                if job is not None:
                    self._serve(job)
                else:
                    self._clean()
            except Exception:  # the top of the thread: other preparations go on
                log.exception("a preparation was left half done")
            finally:
                if job is not None:
                    with self._lock:
                        self._serving[job.account] -= 1
                    self.clean()

    def _begin(self) -> None:
        """End what a former worker was running, once: until then nothing is prepared."""
        with self._beginning:
            if not self._begun:
                self.programs.end_former()
                self._begun = True

    def _clean(self) -> None:
        """Clean up, on nobody's account: what a job's account has made can take its time to remove."""
        for field, preparer in list(self._preparers.items()):
            try:
                preparer.left(self.living())
            except Exception:  # of a preparer: replicas wait for what is prepared all the same
                log.exception("what was prepared was not cleaned up", extra={"field": field})

    def _serve(self, job: Preparation) -> None:
        """Prepare something, and let those that wait for it go on, or say why there is nothing."""
        title, problem, exit_code, made = TITLES[job.wanted.field], "", None, Contribution()
        try:
            job.check()
            made = self._preparers[job.wanted.field].prepare(job)
            with self._lock:
                self._close(job)
            self._preparers[job.wanted.field].used(made, job.users)
        except Cancelled:
            problem = STOPPED
        except NotPrepared as error:
            problem, exit_code = f"{title}: {error.message}", error.exit_code
        except (PenstockError, OSError) as error:
            problem = f"{title}: {error.message if isinstance(error, PenstockError) else error}"
        except Exception as error:  # of this preparation alone
            log.exception("not prepared", extra={"field": job.wanted.field})
            problem = f"{title}: {type(error).__name__}: {error}"
        if problem not in ("", STOPPED):
            job.say(problem)
        with self._lock:
            self._close(job)
            for order in job.waiting.values():
                if job.cancelled:
                    self._end(order, STOPPED)
                elif problem:
                    self._end(order, problem, exit_code)
                else:
                    self._next(made.applied(order, job.wanted.field))
        self._wake()


def make_preparer(field: str, parts: Preparations) -> Preparer:
    """Return the preparer of a field of orders. Each is loaded with the first order that needs it."""
    if field == "snapshot":
        from penstock.engines.agent.unpacking import UnpackedFolders

        return UnpackedFolders(parts.data, parts.node)
    if field == "inputs":
        from penstock.engines.agent.inputs import InputsPreparer

        return InputsPreparer(parts.data, parts.node)
    if field == "python":
        from penstock.engines.agent.environments import Environments

        return Environments(parts.data, parts.node)
    if field == "setup":
        from penstock.engines.agent.setting_up import SettingUp

        return SettingUp(parts.data, parts.node)
    if field == "image":
        from penstock.engines.containers.images import Images

        return Images(parts.data, parts.node, parts.say_anew)
    raise NotPrepared(f"this node does not know how to prepare {field}")
