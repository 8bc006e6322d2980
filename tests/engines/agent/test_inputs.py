"""Inputs on a node: fetched once for an account, checked, resumed, kept within bounds, and why there are none."""

import hashlib
import os
import pwd
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.core.messages.orders import Inputs
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.core.model.jobs import Input
from penstock.engines.agent import inputs as module
from penstock.engines.agent import kept
from penstock.engines.agent.journal import Journal
from penstock.engines.agent.parts import Prepared
from penstock.engines.agent.preparing import Preparations
from penstock.engines.agent.programs import Programs
from penstock.engines.processes.paths import DataFolder
from tests.engines.agent.builders import sessions, start
from tests.engines.agent.webfiles import WebFiles
from tests.server.harness import until

DATA = bytes(range(256)) * 2_000


def key(job: int) -> ReplicaKey:
    return ReplicaKey(JobId(job), AttemptNumber(1), Rank(0))


class Node:
    """A node that prepares inputs, with the programs that it starts for that."""

    def __init__(self, root: Path) -> None:
        self.data = DataFolder(root)
        folder = self.data.node("n1")
        folder.mkdir(parents=True, exist_ok=True)
        programs = Programs(folder, sessions(), Journal(folder / "journal"))
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.parts = Preparations("n1", self.data, programs, (), lambda: self._news.put(None))
        self.bounds: dict[str, Any] = {"most_bytes": 10**9, "kept_bytes": 10**9, "kept_ms": 10**9}

    def start(self, job: int, *items: Input, **fields: Any) -> None:
        self.parts.start(start(key(job), inputs=Inputs(items, **self.bounds), **fields))

    def prepared(self) -> Prepared:
        while self.parts.done.empty():
            self._news.get(timeout=60)
        return self.parts.done.get()

    def gets(self, job: int, *items: Input, **fields: Any) -> Path:
        self.start(job, *items, **fields)
        done = self.prepared()
        assert done.problem == "", done.problem
        return Path(dict(done.order.env)["PENSTOCK_INPUTS_DIR"])

    def refused(self, job: int, *items: Input, **fields: Any) -> Prepared:
        self.start(job, *items, **fields)
        done = self.prepared()
        assert done.problem
        return done

    def said(self, job: int) -> str:
        return self.data.output(key(job)).read_text()


@pytest.fixture
def web() -> Iterator[WebFiles]:
    made = WebFiles()
    made.files["/a.bin"] = DATA
    yield made
    made.close()


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(module, "PAUSES_S", (0.0, 0.0, 0.0))
    return Node(tmp_path / "data")


def gets(web: WebFiles) -> int:
    """Return how often the whole or a part of a file was asked for, beside looks at it."""
    return len(web.asked)


def test_an_input_is_fetched_once_for_all_jobs_and_nobody_may_write_it(node, web):
    one = Input("models/a.bin", f"{web.url}/a.bin?sig=secret")
    first, second = node.gets(1, one), node.gets(2, one)
    assert first == second
    path = first / "models" / "a.bin"
    assert path.read_bytes() == DATA
    assert (path.stat().st_mode & 0o777, first.stat().st_mode & 0o777) == (0o444, 0o555)
    assert len(web.asked) == 4  # looked at, read, looked at again; looked at for the second job
    assert "fetched models/a.bin: 500 KiB" in node.said(1)
    assert hashlib.sha256(DATA).hexdigest() in node.said(1)
    assert "is on this node already: 500 KiB, unchanged at its source" in node.said(2)
    assert "secret" not in node.said(1) + node.said(2)


def test_a_content_that_changed_at_its_source_is_fetched_anew_and_the_former_stays_for_its_job(node, web):
    one = Input("a", f"{web.url}/a.bin")
    before = node.gets(1, one)
    web.files["/a.bin"] = b"new"
    assert (node.gets(2, one) / "a").read_bytes() == b"new"
    assert (before / "a").read_bytes() == DATA


def test_a_content_of_which_nothing_says_its_version_is_fetched_each_time(node, web):
    web.versions = False
    assert node.gets(1, Input("a", f"{web.url}/a.bin")) != node.gets(2, Input("a", f"{web.url}/a.bin"))


def test_a_broken_transfer_goes_on_where_it_was(node, web):
    web.files["/a.bin"] = large = DATA * 8
    web.breaks = [-1, 3_000_000, 800_000]
    assert (node.gets(1, Input("a", f"{web.url}/a.bin")) / "a").read_bytes() == large
    first, second = (int(asked[6:-1]) for _, asked, _ in web.asked if asked)
    assert 0 < first <= 3_000_000
    assert first < second <= first + 800_000
    assert "next try in 0 s" in node.said(1)


def test_a_source_that_is_not_there_for_long_is_no_fault_of_the_job(node, web):
    web.statuses = [503] * 4
    done = node.refused(1, Input("a", f"{web.url}/a.bin?sig=1"))
    assert (done.exit_code, gets(web)) == (None, 4)
    assert "cannot be fetched now, after 4 tries: refused: status 503" in done.problem
    assert "sig=1" not in done.problem


@pytest.mark.parametrize(("path", "statuses", "word"), [("/none", [], "not found"), ("/a.bin", [403], "forbidden")])
def test_what_is_not_there_or_forbidden_is_the_jobs_own_fault_and_is_asked_for_once(node, web, path, statuses, word):
    web.statuses = statuses
    done = node.refused(1, Input("a", f"{web.url}{path}"))
    assert (done.exit_code, gets(web)) == (126, 1)
    assert word in done.problem


def test_a_content_is_checked_against_its_sha256_and_needs_no_source_the_next_time(node, web):
    right = Input("a", f"{web.url}/a.bin", hashlib.sha256(DATA).hexdigest())
    node.gets(1, right)
    asked = gets(web)
    assert (node.gets(2, right, env=(("TOKEN", "other"),)) / "a").read_bytes() == DATA
    assert gets(web) == asked
    done = node.refused(3, replace(right, sha256="0" * 64))
    assert (done.exit_code, "expected 000" in done.problem, right.sha256 in done.problem) == (126, True, True)


def test_a_content_that_was_changed_on_the_node_is_fetched_anew(node, web):
    one = Input("a", f"{web.url}/a.bin", hashlib.sha256(DATA).hexdigest())
    path = (node.gets(1, one) / "a").resolve()
    path.chmod(0o600)
    path.write_bytes(b"x" * len(DATA))
    os.utime(path, (1, 1))
    assert (node.gets(2, one) / "a").read_bytes() == DATA


def test_inputs_are_kept_over_restarts_of_agent_and_machine(node, web, monkeypatch):
    one = Input("a", f"{web.url}/a.bin", hashlib.sha256(DATA).hexdigest())
    node.gets(1, one)
    monkeypatch.setattr(kept, "boot_id", lambda: "another")
    asked = gets(web)
    assert (Node(node.data.root).gets(2, one) / "a").read_bytes() == DATA
    assert gets(web) == asked


def test_an_input_over_its_limit_is_refused_before_it_is_fetched_and_while_it_comes(node, web):
    node.bounds["most_bytes"] = 100_000
    done = node.refused(1, Input("a", f"{web.url}/a.bin"))
    assert (done.exit_code, gets(web)) == (126, 1)
    assert "has 500 KiB, an input may have 97.66 KiB" in done.problem


def test_a_folder_is_fetched_with_all_below_it(node, tmp_path):
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    for number in range(3):
        (source / "sub" / f"{number}").write_bytes(b"x" * number)
    view = node.gets(1, Input("data/train", f"file://{source}/"))
    assert {one.name: one.read_bytes() for one in (view / "data/train/sub").iterdir()} == {
        "0": b"",
        "1": b"x",
        "2": b"xx",
    }
    assert os.readlink(view / "data" / "train").startswith("../../")  # relative: it may be mounted elsewhere


def test_each_jobs_own_credentials_are_asked_with_and_one_folder_serves_both(node, web):
    one = Input("a", f"{web.url}/a.bin")
    for job, who in ((1, "mine"), (2, "yours")):
        config = f'{{"client_kwargs": {{"headers": {{"Authorization": "{who}"}}}}}}'
        node.start(job, one, env=(("FSSPEC_HTTP", config),))
    done = [node.prepared(), node.prepared()]
    assert [one.problem for one in done] == ["", ""]
    assert len({dict(one.order.env)["PENSTOCK_INPUTS_DIR"] for one in done}) == 1
    assert {who for _, _, who in web.asked} == {"mine", "yours"}


def test_what_no_replica_uses_leaves_when_it_is_too_much(node, web):
    web.files["/b.bin"] = b"b" * 1_000
    node.bounds["kept_bytes"] = 2_000
    large, small = Input("a", f"{web.url}/a.bin"), Input("b", f"{web.url}/b.bin")
    used = node.gets(1, large)
    node.gets(2, small)
    node.parts.left(key(2))
    node.gets(3, small)
    assert (used / "a").read_bytes() == DATA
    node.parts.left(key(1))
    node.gets(4, small)
    until(
        lambda: not any(one.stat().st_size > 2_000 for one in (node.data.inputs("n1") / "own").glob("*/content")),
        "it is removed",
    )


def test_a_full_disk_is_said_with_numbers(node, web, monkeypatch):
    monkeypatch.setattr(kept, "SPARE_BYTES", 2**62)
    done = node.refused(1, Input("a", f"{web.url}/a.bin"))
    assert done.exit_code is None
    assert "left, an input has 500 KiB" in done.problem


def test_a_stopped_replica_leaves_no_program(node, web):
    web.hold = True
    node.start(1, Input("a", f"{web.url}/a.bin"))
    web.reached.wait(30)
    node.parts.cancel(key(1))
    assert "stopped" in node.prepared().problem
    web.let.set()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_an_url_opens_nothing_that_the_account_could_not_open(node, web, tmp_path):
    account = pwd.getpwnam("nobody")
    for folder in [node.data.root, *node.data.root.parents]:
        if folder != Path("/tmp").parent:
            folder.chmod(folder.stat().st_mode | 0o011)
    closed = tmp_path / "closed"
    closed.write_text("of root")
    closed.chmod(0o600)
    done = node.refused(1, Input("a", f"file://{closed}"), account="nobody")
    assert (done.exit_code, "forbidden" in done.problem) == (126, True)
    view = node.gets(2, Input("a", f"{web.url}/a.bin"), account="nobody")
    assert (view / "a").stat().st_uid == 0
    home = view.parent.stat()
    assert (home.st_uid, home.st_mode & 0o777) == (account.pw_uid, 0o500)
