"""What replicas need is prepared once for all that need the same, before they start; a failure has its reason."""

import errno
import os
import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.core.messages.orders import StartReplica
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.core.model.resources import Resources
from penstock.engines.agent import preparing
from penstock.engines.agent.journal import Journal, JournalLine, programs_in, replay
from penstock.engines.agent.parts import Prepared
from penstock.engines.agent.preparation import Contribution, NotPrepared, Preparation, Preparer
from penstock.engines.agent.preparing import Preparations
from penstock.engines.agent.programs import Program, Programs, text_of
from penstock.engines.processes.containment import choose
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.procfs import alive, start_ticks
from tests.engines.agent.builders import sessions, start
from tests.engines.processes.processes import ESCAPE
from tests.server.harness import until


def key(job: int, rank: int = 0) -> ReplicaKey:
    return ReplicaKey(JobId(job), AttemptNumber(1), Rank(rank))


def order(job: int, rank: int = 0, snapshot: str = "h/a", **fields: object) -> StartReplica:
    return start(key(job, rank), snapshot=snapshot, **fields)


class Making(Preparer):
    """Prepares by a function of the test."""

    def __init__(self, make: Callable[[Preparation], Contribution]) -> None:
        self._make = make
        self.made: list[str] = []
        self.kept: dict[str, set[str]] = {}
        self.living: list[frozenset[str]] = []

    def key(self, order: StartReplica) -> str:
        return order.snapshot

    def prepare(self, job: Preparation) -> Contribution:
        self.made.append(job.order.snapshot)
        return self._make(job)

    def used(self, made: Contribution, users) -> None:
        self.kept.setdefault(made.workdir, set()).update(users)

    def left(self, living) -> None:
        self.living.append(frozenset(living))


class Node:
    def __init__(self, root: Path, make: Callable[[Preparation], Contribution], containment=None) -> None:
        self.data = DataFolder(root)
        self.folder = self.data.node("n1")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(self.folder / "journal")
        self.containment = containment or sessions()
        left = programs_in(self.journal)
        self.programs = Programs(self.folder, self.containment, self.journal, left)
        self.news = threading.Event()
        self.preparer = Making(make)
        self.parts = Preparations("n1", self.data, self.programs, (), self.news.set, lambda *_: self.preparer)

    def next(self) -> Prepared:
        return self.parts.done.get(timeout=20)

    def output(self, job: int, rank: int = 0) -> str:
        path = self.data.output(key(job, rank))
        return path.read_text() if path.exists() else ""


@pytest.fixture(params=["sessions", pytest.param("groups", marks=pytest.mark.root)])
def containment(request):
    kind = choose(f"penstock-test-prepare-{os.getpid()}") if request.param == "groups" else sessions()
    if request.param == "groups" and kind.kind.startswith("sessions"):
        pytest.skip("no writable control groups here")
    yield kind
    kind.close()


def shell(text: str) -> Callable[[Preparation], Contribution]:
    """Return what prepares by a line for the shell."""

    def make(job: Preparation) -> Contribution:
        done = job.run(["/bin/sh", "-c", text])
        if not done.ok:
            raise NotPrepared("it failed", done.ended.code)
        return Contribution(workdir="/made")

    return make


def test_replicas_that_need_the_same_wait_for_one_preparation(tmp_path):
    go = threading.Event()
    node = Node(tmp_path, lambda job: (go.wait(20), Contribution(workdir=f"/{job.order.snapshot}"))[1])
    for one in (order(1, 0), order(1, 1), order(2), order(3, snapshot="h/b"), order(4, account="root")):
        node.parts.start(one)
    go.set()
    found = {one.order.key: one.order for one in (node.next() for _ in range(5))}
    assert sorted(node.preparer.made) == ["h/a", "h/a", "h/b"]  # an account apart
    assert {one.workdir for one in found.values()} == {"/h/a", "/h/b"}
    assert {one.snapshot for one in found.values()} == {""}
    assert {"1.1.0", "1.1.1", "2.1.0"} <= node.preparer.kept["/h/a"]


def test_what_was_prepared_is_part_of_each_start(tmp_path):
    made = Contribution(
        (("TOOL", "new"),), (("TOOL", "x"), ("OWN", "x"), ("MORE", "1")), ("/env/bin",), ("box", "--name=r-{replica}")
    )
    node = Node(tmp_path, lambda job: made)
    given = (("TOOL", "old"), ("OWN", "mine"), ("PATH", "/usr/bin"))
    node.parts.start(order(1, 2, env=given, workdir="/here", command=("train", "--fast")))
    found = node.next().order
    assert dict(found.env) == {"TOOL": "new", "OWN": "mine", "MORE": "1", "PATH": "/env/bin:/usr/bin"}
    assert found.command == ("box", "--name=r-1.1.2", "train", "--fast")
    assert found.workdir == "/here"


@pytest.mark.parametrize("exit_code", [None, 3])
def test_a_failure_has_its_reason_there_and_in_the_output(tmp_path, exit_code):
    def fail(job: Preparation) -> Contribution:
        raise NotPrepared("no such thing", exit_code)

    node = Node(tmp_path, fail)
    node.parts.start(order(1))
    found = node.next()
    assert (found.problem, found.exit_code) == ("its folder was not unpacked: no such thing", exit_code)
    assert node.output(1) == "penstock: its folder was not unpacked: no such thing\n"


def test_one_account_leaves_threads_to_others(tmp_path, monkeypatch):
    monkeypatch.setattr(preparing, "ACCOUNT_MAX", 1)
    go = threading.Event()
    node = Node(tmp_path, lambda job: (job.account or go.wait(20), Contribution())[1])
    for one in (order(1), order(2, snapshot="h/b"), order(3, account="root")):
        node.parts.start(one)
    assert node.next().order.key == key(3)
    assert node.preparer.made == ["h/a", "h/a"]
    go.set()
    assert {node.next().order.key, node.next().order.key} == {key(1), key(2)}


def test_one_that_fails_by_a_bug_does_not_stop_the_next(tmp_path):
    node = Node(tmp_path, lambda job: Contribution(workdir={"h/b": "/b"}[job.order.snapshot]))
    node.parts.start(order(1))
    assert "KeyError" in node.next().problem
    node.parts.start(order(2, snapshot="h/b"))
    assert node.next().problem == ""


def test_the_first_replica_of_each_job_shows_what_is_printed_later_ones_too(tmp_path, containment):
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    node = Node(tmp_path, shell(f"echo first; read line <{fifo}; echo then >&2"), containment)
    for one in (order(1, 0), order(1, 1)):
        node.parts.start(one)
    until(lambda: node.output(1) == "first\n", "it prints")
    node.parts.start(order(2, 0))
    fifo.write_text("\n")
    assert {node.next().problem for _ in range(3)} == {""}
    assert (node.output(1), node.output(2)) == ("first\nthen\n", "first\nthen\n")
    assert node.output(1, 1) == ""


def test_the_folder_of_a_job_whose_output_was_begun_is_not_marked_again(tmp_path):
    node = Node(tmp_path, shell("echo made"))
    node.parts.start(order(1, mark="0123456789abcdef-1"))
    assert node.next().order.mark == ""
    assert node.output(1) == "made\n"


def test_what_a_program_printed_just_before_its_end_is_there(tmp_path):
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    said: list[bytes] = []

    def take(data: bytes) -> None:
        said.append(data)
        if len(said) == 1:
            fifo.write_text("\n")
            until(lambda: not alive(int(data), start_ticks(int(data)) or 0), "it has ended")

    node = Node(tmp_path / "data", lambda job: Contribution())
    program = Program(["/bin/sh", "-c", f"echo $$; read line <{fifo}; echo last"], {}, "/", "", Resources())
    assert node.programs.run(program, take, lambda: False) == (0, None, "")
    assert said[1:] == [b"last\n"]


def escaping(tmp_path: Path) -> Callable[[Preparation], Contribution]:
    def make(job: Preparation) -> Contribution:
        job.run([sys.executable, "-S", "-c", ESCAPE, str(tmp_path / "pid.new"), str(tmp_path / "pid"), "stay"])
        raise AssertionError("it ended")

    return make


def escaped(tmp_path: Path) -> tuple[int, int]:
    pid = int(until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "it has got away"))
    return pid, start_ticks(pid) or 0


def test_it_is_given_up_with_all_its_processes_when_the_last_replica_is_stopped(tmp_path, containment):
    node = Node(tmp_path, escaping(tmp_path), containment)
    node.parts.start(order(1))
    node.parts.start(order(2))
    pid, ticks = escaped(tmp_path)
    assert node.parts.cancel(key(1))
    assert (node.next().order.key, alive(pid, ticks)) == (key(1), True)
    assert node.parts.cancel(key(2))
    found = node.next()
    assert (found.order.key, found.problem, alive(pid, ticks)) == (key(2), "stopped before it started", False)
    assert not node.parts.cancel(key(2))


def test_a_replica_that_comes_after_all_were_stopped_is_prepared_anew(tmp_path):
    asked: queue.SimpleQueue[Preparation] = queue.SimpleQueue()
    go = threading.Event()

    def make(job: Preparation) -> Contribution:
        asked.put(job)
        go.wait(20)
        job.check()
        return Contribution(workdir="/made")

    node = Node(tmp_path, make)
    node.parts.start(order(1))
    asked.get(timeout=20)
    node.parts.cancel(key(1))
    node.parts.start(order(2))
    go.set()
    found = {one.order.key: one.problem for one in (node.next(), node.next())}
    assert found == {key(1): "stopped before it started", key(2): ""}


def test_it_is_given_up_when_its_time_is_over(tmp_path):
    node = Node(tmp_path, shell("sleep 60"))
    node.parts.start(order(1, preparing_limit_ms=50))
    assert node.next().problem == "its folder was not unpacked: it took longer than 0.05 s"


def test_the_journal_names_a_program_while_it_runs_and_the_next_worker_kills_it(tmp_path, containment):
    node = Node(tmp_path, escaping(tmp_path), containment)
    node.parts.start(order(1))
    pid, ticks = escaped(tmp_path)
    (known,) = replay(node.folder / "journal").values()
    assert (known.key, known.what, known.exit) == (key(0), "started", None)
    following = Node(tmp_path, shell("true"), containment)
    assert following.journal.known == {}
    following.parts.clean()
    until(lambda: not alive(pid, ticks), "the next worker has killed it")
    until(lambda: replay(node.folder / "journal") == {}, "nothing is noted")
    assert "it ended" in node.next().problem


def test_what_a_former_worker_left_and_nobody_can_end_or_clean_up_keeps_no_replica_waiting(tmp_path, monkeypatch):
    former, kind = Node(tmp_path, lambda job: Contribution()), sessions()
    for rank in (0, 1):
        former.journal.write(JournalLine(key(0, rank), "started", os.getpid(), 1))  # of a process that is gone
    box = kind.box
    monkeypatch.setattr(kind, "box", lambda name, *more: box(name, *more) if name.endswith(".1") else failing())
    node = Node(tmp_path, lambda job: Contribution(workdir="/made"), kind)
    monkeypatch.setattr(node.preparer, "left", failing)
    node.parts.start(order(1))
    assert node.next().problem == ""
    assert list(replay(node.folder / "journal")) == [key(0, 0)], "the other is forgotten, and this one is not"


def failing(*_: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.root
def test_a_program_that_has_no_memory_left_says_so(tmp_path):
    containment = choose(f"penstock-test-memory-{os.getpid()}")
    if containment.kind.startswith("sessions"):
        pytest.skip("no writable control groups here")
    node = Node(tmp_path, lambda job: Contribution(), containment)
    words = [sys.executable, "-c", "x = bytearray(2**30)"]
    ended = node.programs.run(Program(words, {}, "/", "", Resources(memory_bytes=64 * 2**20)), print, lambda: False)
    assert "memory" in text_of(ended)
    containment.close()


def test_what_a_program_leaves_running_does_not_stay(tmp_path, containment):
    words = [sys.executable, "-S", "-c", ESCAPE, str(tmp_path / "pid.new"), str(tmp_path / "pid")]

    def make(job: Preparation) -> Contribution:
        assert job.run(["/bin/sh", "-c", f"{' '.join(map(repr, words))}; until [ -e {tmp_path}/pid ]; do :; done"]).ok
        return Contribution()

    words[3] = "exec(open(__import__('sys').argv.pop(1)).read())"
    words.insert(4, str(tmp_path / "escape.py"))
    (tmp_path / "escape.py").write_text(ESCAPE)
    node = Node(tmp_path, make, containment)
    node.parts.start(order(1))
    assert node.next().problem == ""
    assert not alive(*escaped(tmp_path))


def test_who_uses_what_is_known_and_cleaned_up_after(tmp_path):
    node = Node(tmp_path, lambda job: Contribution(workdir="/made"))
    node.parts.start(order(1))
    node.next()
    node.parts.start(order(2, snapshot="h/b"))
    node.next()
    until(lambda: node.preparer.living[-1] == {"1.1.0", "2.1.0"}, "both live")
    node.parts.left(key(1))
    until(lambda: node.preparer.living[-1] == {"2.1.0"}, "one is left")


def test_a_need_that_this_node_does_not_know_is_a_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(preparing, "NEEDS", ("workdir",))
    monkeypatch.setitem(preparing.TITLES, "workdir", "no folder")
    node = Node(tmp_path, lambda job: Contribution())
    parts = Preparations("n1", node.data, node.programs, (), node.news.set)
    parts.start(start(key(1), workdir="/x"))
    assert "does not know how to prepare workdir" in parts.done.get(timeout=20).problem
