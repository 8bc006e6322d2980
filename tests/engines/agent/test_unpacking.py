"""Snapshots on a node: fetched in parts, checked, unpacked once, read-only, used again while nothing has changed."""

import os
import pwd
import queue
import threading
import time
from pathlib import Path

import pytest

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model import folder_snapshots as fs
from penstock.core.model.folder_snapshots import SnapshotFile
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.engines.agent import kept, unpacking
from penstock.engines.agent.journal import Journal
from penstock.engines.agent.parts import NodeParts, Prepared
from penstock.engines.agent.preparing import Preparations
from penstock.engines.agent.programs import Programs
from penstock.engines.agent.protocol import PART_BYTES, AgentFetch, ServerPart
from penstock.engines.processes.paths import DataFolder
from tests.engines.agent.builders import sessions, start
from tests.server.harness import until

TEXT, LARGE = b"print('hello')\n", os.urandom(2_500_000)


def key(job: int) -> ReplicaKey:
    return ReplicaKey(JobId(job), AttemptNumber(1), Rank(0))


def cut(data: bytes) -> list[bytes]:
    return [data[at : at + fs.CHUNK_BYTES] for at in range(0, len(data), fs.CHUNK_BYTES)]


def file(path: str, data: bytes, kind="file") -> SnapshotFile:
    return SnapshotFile(path, kind, len(data), tuple(map(fs.chunk_hash, cut(data))))


class Source:
    """A server's end: answers as the server does, from a list of files and their contents."""

    def __init__(self, *files: SnapshotFile, contents: tuple[bytes, ...] = (TEXT, LARGE)) -> None:
        self.files = tuple(sorted(files, key=lambda one: one.path))
        self.data = fs.encoded(self.files)
        self.name = f"{'a' * 32}/{fs.name_of(self.data)}"
        self.chunks = {fs.chunk_hash(chunk): chunk for data in contents for chunk in cut(data)}
        self.asked: list[AgentFetch] = []
        self.problem = ""

    def answer(self, wanted: AgentFetch) -> ServerPart:
        self.asked.append(wanted)
        if self.problem:
            return ServerPart(wanted.number, problem=self.problem)
        if not wanted.wanted:
            return ServerPart(wanted.number, (self.data[wanted.offset : wanted.offset + 40],), len(self.data))
        hashes = fs.chunks_of(self.files)
        return ServerPart(wanted.number, tuple(self.chunks[hashes[number]] for number in wanted.wanted))


PROJECT = (
    file("code/train.py", TEXT),
    file("code/deep/run.sh", TEXT, "program"),
    file("large.bin", LARGE),
    file("empty", b""),
    SnapshotFile("latest", "link", target="code/train.py"),
)


class Node:
    """A node's folders, whose requests a `Source` answers."""

    def __init__(self, root: Path) -> None:
        self.data = DataFolder(root)
        self.data.node("n1").mkdir(parents=True, exist_ok=True)
        self._news = threading.Event()
        self.journal = Journal(self.data.node("n1") / "journal")
        programs = Programs(self.data.node("n1"), sessions(), self.journal)
        self.folders = Preparations("n1", self.data, programs, (), self._news.set)

    def gets(self, source: Source, job: int = 1, **fields: str) -> Prepared:
        self.folders.start(start(key(job), snapshot=source.name, **fields))
        return self.answered_by({source.name: source})

    def answered_by(self, sources: dict[str, Source]) -> Prepared:
        """Return the next replica that may start, or cannot, while sources answer."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if (wanted := self.folders.fetching.to_ask()) is not None:
                self.folders.fetching.answered(sources[wanted.snapshot].answer(wanted))
            try:
                return self.folders.done.get_nowait()
            except queue.Empty:
                self._news.wait(0.05)
                self._news.clear()
        raise AssertionError("never unpacked")

    def tree(self, source: Source, job: int = 1) -> Path:
        found = self.gets(source, job)
        assert found.problem == ""
        assert found.order.snapshot == ""
        return Path(found.order.workdir)


@pytest.fixture
def node(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "WANTED_MAX", 2)
    return Node(tmp_path)


def test_a_tree_is_what_was_sent_and_read_only(node):
    tree = node.tree(Source(*PROJECT))
    assert (tree / "large.bin").read_bytes() == LARGE
    assert (tree / "latest").read_bytes() == TEXT
    assert (tree / "empty").read_bytes() == b""
    modes = {one.relative_to(tree).as_posix(): one.lstat().st_mode & 0o777 for one in tree.rglob("*")}
    modes.pop("latest")
    assert modes == {
        "code": 0o555,
        "code/deep": 0o555,
        "code/deep/run.sh": 0o555,
        "code/train.py": 0o444,
        "empty": 0o444,
        "large.bin": 0o444,
    }
    assert tree.lstat().st_mode & 0o777 == 0o555


@pytest.mark.skipif(os.geteuid() != 0, reason="only root unpacks for other accounts")
def test_an_account_passes_its_own_folder_alone_and_owns_no_file(node):
    source = Source(*PROJECT)
    found = node.gets(source, 1, account="nobody")
    tree, nobody = Path(found.order.workdir), pwd.getpwnam("nobody").pw_uid
    home = tree.parent.stat()
    assert (home.st_uid, home.st_mode & 0o777) == (nobody, 0o500)
    assert {one.lstat().st_uid for one in (tree, *tree.rglob("*"))} == {0}
    assert node.tree(source, 2).parent.name == kept.OWN
    unfinished = tree.parent.parent / kept.UNFINISHED
    assert (unfinished.stat().st_uid, unfinished.stat().st_mode & 0o777) == (0, 0o700)


def test_a_second_job_uses_the_same_tree_and_nothing_is_fetched(node):
    source = Source(*PROJECT)
    first = node.tree(source, 1)
    asked = len(source.asked)
    assert node.tree(source, 2) == first
    assert len(source.asked) == asked


def test_of_a_changed_folder_only_what_changed_is_fetched(node):
    node.tree(Source(*PROJECT), 1)
    changed = b"print('changed')\n"
    source = Source(file("code/train.py", changed), *PROJECT[1:], contents=(TEXT, LARGE, changed))
    tree = node.tree(source, 2)
    assert [len(one.wanted) for one in source.asked if one.wanted] == [1]
    assert (tree / "code" / "train.py").read_bytes() == changed
    assert (tree / "large.bin").read_bytes() == LARGE


def test_a_former_tree_that_was_changed_gives_nothing_wrong(node):
    first = node.tree(Source(*PROJECT), 1)
    (first / "large.bin").chmod(0o644)
    (first / "large.bin").write_bytes(LARGE[::-1])
    second = node.tree(Source(*PROJECT, file("more", TEXT)), 2)
    assert (second / "large.bin").read_bytes() == LARGE


def test_a_worker_that_begins_anew_uses_what_its_former_one_unpacked(node):
    source = Source(*PROJECT)
    first = node.tree(source)
    source.problem = "nothing is to be asked"
    assert Node(node.data.root).tree(source) == first


@pytest.mark.parametrize("change", ["content", "more", "less", "mode"])
def test_a_tree_that_was_changed_is_unpacked_anew(node, change):
    source = Source(*PROJECT)
    first = node.tree(source)
    for folder in (first, first / "code"):
        folder.chmod(0o755)
    train = first / "code" / "train.py"
    if change == "content":
        train.chmod(0o644)
        about = train.stat()
        train.write_bytes(TEXT[::-1])
        os.utime(train, ns=(about.st_atime_ns, about.st_mtime_ns))
        train.chmod(0o444)
    elif change == "more":
        (first / "code" / "sitecustomize.py").write_text("")
    elif change == "less":
        train.unlink()
    for folder in (first, first / "code"):
        folder.chmod(0o555)
    second = node.tree(source)
    assert second != first
    assert (second / "code" / "train.py").read_bytes() == TEXT


def left(node: Node) -> list[Path]:
    """Return what is in the folders of trees, finished or not."""
    return [path for home in node.data.unpacked("n1").iterdir() for path in home.iterdir()]


@pytest.mark.parametrize("wrong", ["content", "list", "problem"])
def test_what_is_not_what_its_hash_says_is_never_used(node, wrong):
    source = Source(*PROJECT)
    if wrong == "content":
        source.chunks[fs.chunk_hash(TEXT)] = b"something else"
    elif wrong == "list":
        source.data = fs.encoded((file("evil", TEXT),))
    else:
        source.problem = "there is no such snapshot"
    said = {"content": "another content", "list": "another list", "problem": "no such snapshot"}[wrong]
    assert said in node.gets(source).problem
    assert left(node) == []


def test_a_list_that_leads_out_of_the_folder_writes_nothing(node):
    assert "relative" in node.gets(Source(file("../../escaped", TEXT))).problem
    assert left(node) == []


def test_what_a_crash_left_half_unpacked_is_removed(node):
    for home in (kept.OWN, kept.UNFINISHED):
        (node.data.unpacked("n1") / home / "half").mkdir(parents=True)
        (node.data.unpacked("n1") / home / "half" / "x").write_text("x")
    tree = node.tree(Source(*PROJECT))
    until(lambda: left(node) == [tree], "what was left is removed")


def test_a_pipe_among_the_trees_of_an_account_keeps_no_job_waiting(node):
    home = node.data.unpacked("n1") / kept.OWN
    home.mkdir(parents=True)
    os.mkfifo(home / "pipe")
    tree = node.tree(Source(*PROJECT))
    until(lambda: left(node) == [tree], "the pipe is removed")


def test_a_link_in_the_place_of_a_tree_is_not_read_through(node, tmp_path):
    first = node.tree(Source(*PROJECT), 1)
    (tmp_path / "elsewhere").mkdir()
    moved = first.with_name("moved")
    first.parent.chmod(0o700)
    first.chmod(0o700)
    first.rename(moved)
    first.symlink_to(moved)
    assert node.tree(Source(*PROJECT), 2) != first


def test_who_has_a_large_tree_keeps_no_other_account_waiting(node):
    with kept._walking["another"]:  # that account's tree is being walked
        assert node.tree(Source(*PROJECT)).exists()


def test_old_trees_go_unless_a_replica_has_them(node, monkeypatch):
    monkeypatch.setattr(unpacking, "KEPT_S", -1)
    used, unused = Source(file("a", TEXT)), Source(file("b", TEXT))
    first = node.tree(used, 1)
    gone = node.tree(unused, 2)
    node.folders.left(key(2))
    node.tree(used, 3)
    until(lambda: not gone.exists(), "the unused tree goes")
    assert first.exists()


def test_beyond_its_room_the_longest_unused_trees_go(node, monkeypatch):
    monkeypatch.setattr(unpacking, "KEPT_BYTES", len(TEXT))
    trees = []
    for job, name in enumerate("abc", 1):
        trees.append(node.tree(Source(file(name, TEXT)), job))
        node.folders.left(key(job))
    node.tree(Source(file("d", TEXT)), 9)
    until(lambda: [tree.exists() for tree in trees] == [False, False, True], "the longest unused trees go")


def test_the_disk_keeps_its_room_and_an_account_has_its_bound(node, monkeypatch):
    monkeypatch.setattr(kept, "SPARE_BYTES", 2**62)
    assert "the node's disk has" in node.gets(Source(file("a", TEXT)), 1).problem
    monkeypatch.setattr(kept, "SPARE_BYTES", 0)
    monkeypatch.setattr(unpacking, "USED_BYTES_MAX", len(TEXT) + 1)
    node.tree(Source(file("a", TEXT)), 2)
    assert "folders of this account's jobs would take" in node.gets(Source(file("b", TEXT)), 3).problem
    node.folders.left(key(2))
    node.tree(Source(file("b", TEXT)), 4)


def test_a_question_lost_with_its_connection_is_asked_again(node):
    source = Source(*PROJECT)
    node.folders.start(start(key(1), snapshot=source.name))
    deadline = time.monotonic() + 20
    while (first := node.folders.fetching.to_ask()) is None:
        assert time.monotonic() < deadline
    assert node.folders.fetching.to_ask() is None
    node.folders.fetching.ask_again()
    assert node.folders.fetching.to_ask() == first
    node.folders.fetching.answered(ServerPart(first.number + 7, problem="of a former question"))
    node.folders.fetching.answered(source.answer(first))
    assert node.gets(source, 2).problem == ""


def test_a_large_snapshot_does_not_keep_a_small_one_back(node):
    pieces = [str(number).encode() for number in range(200)]
    large = Source(*(file(f"{i:03}", data) for i, data in enumerate(pieces)), contents=tuple(pieces))
    small = Source(file("a", TEXT))
    sources = {one.name: one for one in (large, small)}
    for job, source in enumerate((large, small), 1):
        node.folders.start(start(key(job), snapshot=source.name))
    assert node.answered_by(sources).order.key == key(2)
    assert node.answered_by(sources).order.key == key(1)
    assert len(large.asked) > 100


def test_replicas_of_one_snapshot_wait_for_it_together(node):
    source = Source(*PROJECT)
    for job in (1, 2, 3):
        node.folders.start(start(key(job), snapshot=source.name))
    found = [node.answered_by({source.name: source}) for _ in range(3)]
    assert len({one.order.workdir for one in found}) == 1
    assert {one.order.key for one in found} == {key(1), key(2), key(3)}
    assert len([one for one in source.asked if not one.wanted]) == -(-len(source.data) // 40)


def test_a_replica_that_was_stopped_meanwhile_does_not_start(node):
    parts, source = NodeParts(node.data.node("n1"), (), node.journal), Source(*PROJECT)
    parts.make_preparations = lambda: node.folders
    for job in (1, 2):
        assert parts.prepares(start(key(job), snapshot=source.name))
    assert parts.cancel_needs(key(1))
    assert [(one.order.key, one.problem) for one in parts.prepared()] == [(key(1), "stopped before it started")]
    parts.left(key(1))
    assert node.answered_by({source.name: source}).order.key == key(2)
    assert list(parts.prepared()) == []


def test_a_node_that_prepares_nothing_says_so(node):
    parts = NodeParts(node.data.node("n1"), (), Journal(node.data.node("n1") / "journal"))
    assert not parts.prepares(start(key(1)))
    assert parts.prepares(start(key(1), snapshot="a/b"))
    assert [one.problem for one in parts.prepared()] == ["this node prepares nothing for replicas"]


def test_a_part_has_what_the_server_sends_in_one_and_the_next_is_asked_ahead(node):
    assert list(unpacking._batches([(0, PART_BYTES), (1, 1), (2, PART_BYTES - 1), (3, 1), (4, 1), (5, 1)])) == [
        (0,),
        (1, 2),
        (3, 4),
        (5,),
    ]
    source = Source(*PROJECT)
    source.answer = lambda wanted: ServerPart(
        wanted.number, (TEXT, TEXT) if wanted.wanted else (source.data,), len(source.data)
    )
    assert "sent 2 chunks, wanted were 1" in node.gets(source).problem
    assert node.folders.fetching.to_ask() is None
