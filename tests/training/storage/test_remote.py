"""Rules of checkpoints at a URL: the manifest makes them, nothing is uploaded twice, the fence is the record."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.needs import need

fsspec = need("fsspec")

from penstock import training  # noqa: E402
from penstock.training import (  # noqa: E402
    BadArgument,
    BadEnvironment,
    DamagedCheckpoint,
    FencedAttempt,
    Place,
    Preempted,
    RemoteDirectory,
    Whole,
    read_environment,
)
from penstock.training.storage.manifest import decode_manifest, encode_manifest  # noqa: E402
from penstock.training.storage.remote import _Store  # noqa: E402

Open = Callable[..., RemoteDirectory]
RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=50_000)
STATE = {"weights": WEIGHTS, "zeros": np.zeros(50_000), "note": "first", "raw": b"\x00\x01"}


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """A server in this process that speaks S3."""
    need("s3fs")
    server = need("moto.server").ThreadedMotoServer(port=0)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture(params=["memory", "file", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty place at a URL."""
    if request.param == "file":
        yield f"file://{tmp_path}/bucket/run"
    elif request.param == "memory":
        yield f"memory://{tmp_path.name}/run"
        fsspec.filesystem("memory").rm("/", recursive=True)
    else:
        variables = {"ENDPOINT_URL": request.getfixturevalue("s3_endpoint"), "DEFAULT_REGION": "us-east-1"}
        for name, value in {**variables, "ACCESS_KEY_ID": "k", "SECRET_ACCESS_KEY": "s"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        bucket = tmp_path.name.replace("_", "-").lower().strip("-")[-60:]
        fsspec.filesystem("s3").mkdir(bucket)
        yield f"s3://{bucket}/run"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[str]:
    """An empty place that is quick, for rules that do not depend on the file system."""
    yield f"memory://{tmp_path.name}/run"
    fsspec.filesystem("memory").rm("/", recursive=True)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The growing list of what is asked of stores, by method and last part of the name."""
    return watch(monkeypatch)


def watch(monkeypatch: pytest.MonkeyPatch, fail_at: int | None = None, error: BaseException | None = None) -> list[str]:
    """Note what is asked of stores; let the `fail_at`-th of that fail."""
    begun: list[str] = []

    def patch(method: str) -> None:
        real = getattr(_Store, method)

        def operation(self: Any, *arguments: Any) -> Any:
            name = arguments[-1] if method == "copy" else arguments[0]
            begun.append(f"{method} {name.rpartition('/')[2] if isinstance(name, str) else len(name)}")
            if len(begun) - 1 == fail_at and error is not None:
                raise error
            return real(self, *arguments)

        monkeypatch.setattr(_Store, method, operation)

    for method in ("put", "stream", "copy", "remove"):
        patch(method)
    return begun


def opened(url: str, attempt: int | None = 1, *, keep: int = 3, rank: int = 0, ranks: int = 1) -> RemoteDirectory:
    directory = RemoteDirectory(url, Place("job-1", attempt, rank, ranks), keep=keep)
    directory.open()
    return directory


def files(url: str) -> list[str]:
    """Return the paths of all files, for the file system."""
    fs, root = fsspec.core.url_to_fs(url)
    fs.invalidate_cache()
    return sorted(fs.find(root))


def names(url: str) -> list[str]:
    return [path.rpartition("/")[2] for path in files(url)]


def equal(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


def test_what_was_written_comes_back(url: str) -> None:
    opened(url).write(7, STATE)
    found, skipped = opened(url, 2).newest_valid()
    assert found is not None
    assert (found.manifest.step, found.manifest.attempt, skipped) == (7, 1, [])
    assert equal(found.state, STATE)


def test_a_file_of_many_pieces_comes_back(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.training.storage.remote.READ_BYTES", 2**20)
    monkeypatch.setattr(fsspec.spec.AbstractFileSystem, "blocksize", 5 * 2**20)
    state = {"big": RNG.integers(0, 255, size=13 * 2**20 + 5, dtype=np.uint8)}
    directory = opened(url)
    directory.write(1, state)
    assert equal(directory.read(1).state, state)
    assert directory.verify(1).step == 1


def test_the_manifest_is_put_last(memory: str, calls: list[str]) -> None:
    directory = opened(memory)
    calls.clear()
    directory.write(1, {"raw": b"x"})
    assert calls == ["stream 0000-raw.bin", "stream tree.json", "put manifest.json"]


class Crash(BaseException):
    """Stands for the end of the process: no handler of the code under test may catch it."""


@pytest.mark.parametrize("error", [Crash(), OSError(5, "Input/output error")], ids=["crash", "trouble"])
def test_failing_at_any_request_leaves_a_whole_checkpoint(
    error: BaseException, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps_seen = set()
    for fail_at in range(100):
        opened(memory).write(1, STATE)
        directory = opened(memory, keep=1)
        with monkeypatch.context() as patch:
            begun = watch(patch, fail_at, error)
            with contextlib.suppress(Crash, OSError):
                directory.write(2, {**STATE, "weights": WEIGHTS + 1})
            done = len(begun) <= fail_at
        found, skipped = opened(memory).newest_valid()
        assert found is not None, begun
        assert skipped == [], begun
        steps_seen.add(found.manifest.step)
        if done:
            break
        fsspec.filesystem("memory").rm("/", recursive=True)
    assert done
    assert fail_at >= 6
    assert steps_seen == {1, 2}


@pytest.mark.parametrize("how", ["flip", "truncate", "append", "delete"])
def test_any_damage_is_noticed_and_the_one_before_restored(how: str, memory: str) -> None:
    fs = fsspec.filesystem("memory")
    directory = opened(memory)
    directory.write(1, STATE)
    directory.write(2, {"note": "second", "raw": b"123", "weights": WEIGHTS})
    of_second = [path for path in files(memory) if "step-000000002" in path]
    assert len(of_second) == 4
    for path in of_second:
        raw = fs.cat_file(path)
        if how == "delete":
            fs.rm_file(path)
        else:
            middle = len(raw) // 2
            flipped = raw[:middle] + bytes([raw[middle] ^ 4]) + raw[middle + 1 :]
            fs.pipe_file(path, {"flip": flipped, "truncate": raw[:-1], "append": raw + b"\n"}[how])
        found, skipped = directory.newest_valid()
        assert found is not None
        assert found.manifest.step == 1, path
        gone = how == "delete" and path.endswith("manifest.json")  # without a manifest it is no checkpoint
        assert [one.step for one in skipped] == ([] if gone else [2]), path
        fs.pipe_file(path, raw)
    assert directory.read(2).state["note"] == "second"


def test_the_problem_names_the_file_and_both_sizes(url: str) -> None:
    directory = opened(url)
    directory.write(7, {"raw": b"12345"})
    path = next(path for path in files(url) if path.endswith("raw.bin"))
    fsspec.core.url_to_fs(url)[0].pipe_file(path, b"123")
    with pytest.raises(DamagedCheckpoint, match=r"step 7 .*0000-raw\.bin has 3 bytes; expected 5"):
        directory.verify(7)


def test_unchanged_files_are_copied_within_the_store(url: str, calls: list[str]) -> None:
    directory = opened(url)
    directory.write(1, STATE)
    calls.clear()
    directory.write(2, {**STATE, "note": "second"})
    assert sorted(calls) == [
        "copy 0000-weights.npy",
        "put manifest.json",
        "stream 0001-zeros.npy.zst",
        "stream 0002-raw.bin",
        "stream tree.json",
    ]
    assert equal(directory.read(2).state, {**STATE, "note": "second"})


def test_a_resumed_program_copies_what_it_has_read(memory: str, calls: list[str]) -> None:
    opened(memory).write(1, STATE)
    directory = opened(memory, 2)
    directory.newest_valid()
    calls.clear()
    directory.write(2, STATE)
    assert "copy 0000-weights.npy" in calls


def test_a_store_that_cannot_copy_gets_the_file_again(
    memory: str, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(*_: object, **__: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "cp_file", cannot)
    directory = opened(memory)
    directory.write(1, STATE)
    directory.write(2, STATE)
    assert calls.count("stream 0000-weights.npy") == 2
    assert equal(directory.read(2).state, STATE)


def test_a_copy_that_fails_is_uploaded_by_the_next_save(memory: str) -> None:
    torch = need("torch", "only tensors tell that they did not change")
    directory, layout, state = opened(memory), Whole(), {"big": torch.randn(2**19)}
    layout.write(directory, 1, layout.stage(directory, state))
    staged = layout.stage(directory, state)
    assert staged[0].same is not None
    fs = fsspec.filesystem("memory")
    fs.rm([path for path in files(memory) if path.endswith(".safetensors")])
    with pytest.raises(FileNotFoundError, match="was to be shared, and is not there any more"):
        layout.write(directory, 2, staged)
    layout.write(directory, 2, layout.stage(directory, state))
    assert torch.equal(directory.read(2).state["big"], state["big"])


def test_an_older_attempt_cannot_publish(url: str) -> None:
    old = opened(url, 1)
    new = opened(url, 2)
    with pytest.raises(FencedAttempt, match=r"attempt 1 .* attempt 2 of this job has started"):
        old.write(5, STATE)
    assert new.steps() == []
    with pytest.raises(FencedAttempt):
        opened(url, 1)


def test_an_older_attempt_uploads_nothing(memory: str, calls: list[str]) -> None:
    old = opened(memory, 1)
    opened(memory, 2)
    calls.clear()
    with pytest.raises(FencedAttempt):
        old.write(5, STATE)
    assert calls == []


def test_trouble_that_a_newer_attempt_makes_is_called_by_its_name(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        opened(memory, 2)
        raise FileNotFoundError("gone")

    old = opened(memory, 1)
    monkeypatch.setattr(_Store, "stream", gone)
    with pytest.raises(FencedAttempt):
        old.write(5, STATE)


def test_what_others_publish_is_seen_at_once(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems remember what they listed."""
    kind = type(fsspec.filesystem("memory"))
    listed: dict[str, Any] = {}
    real = kind.find
    monkeypatch.setattr(kind, "find", lambda fs, top, **_: listed.setdefault(top, real(fs, top, detail=True)))
    monkeypatch.setattr(kind, "invalidate_cache", lambda *_: listed.clear())
    one, other = opened(memory), opened(memory)
    assert one.steps() == []
    other.write(1, {})
    assert one.steps() == [1]


@pytest.mark.parametrize("method", ["stream", "put"])
def test_a_newer_attempt_that_starts_during_a_save_wins(
    method: str, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the instant between the look at the record and the manifest: that is taken back."""
    old = opened(memory, 1)
    real = getattr(_Store, method)

    def late(self: Any, name: str, data: Any) -> Any:
        if "attempt" not in name and old.fence.recorded() == 1:
            opened(memory, 2)
        return real(self, name, data)

    monkeypatch.setattr(_Store, method, late)
    with pytest.raises(FencedAttempt):
        old.write(5, STATE)
    assert old.steps() == []
    assert names(memory) == ["attempt"]


def test_a_lost_answer_is_looked_after(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = opened(memory)
    real = _Store.put

    def lost(self: Any, name: str, data: bytes) -> None:
        real(self, name, data)
        raise OSError(5, "connection reset")

    monkeypatch.setattr(_Store, "put", lost)
    assert directory.write(5, STATE).step == 5
    assert equal(directory.read(5).state, STATE)


def test_files_are_not_deleted_while_nobody_knows_whether_they_are_published(
    memory: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def reset(*_: object) -> Any:
        raise OSError(5, "connection reset")

    directory = opened(memory)
    put, get = _Store.put, _Store.get
    monkeypatch.setattr(_Store, "put", lambda self, name, data: reset(put(self, name, data)))
    monkeypatch.setattr(_Store, "get", lambda self, name: reset() if "manifest" in name else get(self, name))
    with pytest.raises(OSError, match="connection reset"):
        directory.write(5, STATE)
    assert "files of a save that failed stay" in caplog.messages
    monkeypatch.undo()
    assert equal(opened(memory, 1).read(5).state, STATE)


def test_what_another_attempt_published_meanwhile_is_not_taken_back(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = opened(memory, 1)
    real = _Store.put

    def late(self: Any, name: str, data: bytes) -> None:
        real(self, name, data)
        if "manifest" in name and old.fence.recorded() == 1:
            fsspec.filesystem("memory").rm_file(self.path(name))
            opened(memory, 2).write(5, {"from": "new"})

    monkeypatch.setattr(_Store, "put", late)
    with pytest.raises(FencedAttempt):
        old.write(5, {"from": "old"})
    assert old.read(5).state == {"from": "new"}


def test_a_dead_attempt_leaves_nothing_for_ever(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(url, 1).write(1, STATE)
    before = files(url)
    with monkeypatch.context() as patch:
        watch(patch, 4, Crash())
        with pytest.raises(Crash):
            opened(url, 1).write(2, STATE)
    assert len(files(url)) > len(before)
    opened(url, 2, rank=1, ranks=2)
    assert len(files(url)) > len(before)
    opened(url, 2, rank=0, ranks=2)
    assert files(url) == before


def test_what_a_newer_attempt_is_writing_is_not_cleared(memory: str) -> None:
    fs, root = fsspec.core.url_to_fs(memory)
    fs.pipe_file(f"{root}/step-000000004/a3-0f0f/tree.json", b"{}")
    opened(memory, 2)
    assert names(memory) == ["attempt", "tree.json"]


def test_files_beside_a_damaged_manifest_are_kept_for_whoever_looks(memory: str) -> None:
    opened(memory, 1).write(1, STATE)
    path = next(path for path in files(memory) if path.endswith("manifest.json"))
    fsspec.filesystem("memory").pipe_file(path, b"{}")
    before = files(memory)
    assert opened(memory, 2).newest_valid()[1][0].step == 1
    assert files(memory) == before


def test_leftovers_that_cannot_be_deleted_do_not_keep_anybody_from_training(
    memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(13, "denied")

    fs, root = fsspec.core.url_to_fs(memory)
    fs.pipe_file(f"{root}/step-000000004/a1-0f0f/tree.json", b"{}")
    monkeypatch.setattr(_Store, "remove", denied)
    assert opened(memory, 2).steps() == []


def test_the_newest_are_kept(url: str) -> None:
    directory = opened(url, keep=2)
    for step in (10, 20, 30):
        directory.write(step, {"step": step})
    assert directory.steps() == [30, 20]
    assert names(url) == ["attempt", "tree.json", "manifest.json", "tree.json", "manifest.json"]


def test_a_damaged_one_does_not_count_among_the_kept(memory: str) -> None:
    directory = opened(memory, keep=2)
    for step in (10, 20):
        directory.write(step, {"step": step})
    path = next(path for path in files(memory) if "step-000000020/a" in path)
    fsspec.filesystem("memory").pipe_file(path, b"")
    directory.write(30, {})
    assert directory.steps() == [30, 20, 10]


def test_trouble_with_old_ones_does_not_count(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(13, "denied")

    directory = opened(memory, keep=1)
    directory.write(1, {})
    monkeypatch.setattr(_Store, "remove", denied)
    assert directory.write(2, {}).step == 2
    assert directory.steps() == [2, 1]


def test_a_whole_checkpoint_of_the_same_step_is_kept(memory: str) -> None:
    directory = opened(memory)
    first = directory.write(5, STATE)
    assert directory.write(5, {"other": 1}) == first


def test_a_damaged_checkpoint_of_the_same_step_is_replaced(memory: str) -> None:
    directory = opened(memory)
    directory.write(5, STATE)
    fsspec.filesystem("memory").rm_file(next(path for path in files(memory) if path.endswith("tree.json")))
    directory.write(5, {"other": 1})
    assert directory.read(5).state == {"other": 1}


def test_an_unreadable_record_falls_back_on_the_manifests(memory: str) -> None:
    opened(memory, 5).write(1, {})
    fsspec.filesystem("memory").pipe_file(next(path for path in files(memory) if path.endswith("attempt")), b"\xff")
    with pytest.raises(FencedAttempt, match="attempt 5"):
        opened(memory, 4)


def count_to(stop: int, where: str, stop_at: int | None = None, **options: Any) -> int:
    """Run a training that counts, and return how far the state says it came."""
    with training.session(where, **options) as run:
        state = run.resume({"count": 0})
        for step in run.steps(stop, capture=lambda: state):
            state["count"] += 1
            if step == stop_at:
                run.request_stop()
    return int(state["count"])


def test_a_session_resumes_from_a_url(url: str) -> None:
    with pytest.raises(Preempted):
        count_to(9, url, stop_at=3)
    assert RemoteDirectory(url).steps() == [4]
    assert count_to(9, url) == 9


def test_the_variable_wins_over_directory_and_argument(
    memory: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CHECKPOINT_DIR", str(folder / "not mounted"))
    monkeypatch.setenv("PENSTOCK_CHECKPOINT_URL", memory)
    count_to(2, str(folder))
    assert RemoteDirectory(memory).steps() == [2]
    assert not folder.exists()


def test_the_directory_of_the_job_wins_over_a_url_in_the_script(
    memory: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir()
    monkeypatch.setenv("PENSTOCK_CHECKPOINT_DIR", str(folder))
    count_to(2, memory)
    assert (folder / "step-000000002").is_dir()
    assert files(memory) == []


@pytest.mark.parametrize("text", ["bucket/run", "s3://", "://x"])
def test_a_variable_that_is_no_url_is_named(text: str) -> None:
    with pytest.raises(BadEnvironment, match=f"PENSTOCK_CHECKPOINT_URL is '{text}'; expected a URL"):
        read_environment({"PENSTOCK_CHECKPOINT_URL": text})


def test_errors_of_the_store_do_not_end_training(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class ClientError(Exception):
        """As stores have them: no OSError."""

    def slow_down(*_: object, **__: object) -> None:
        raise ClientError("SlowDown")

    with training.session(memory) as run:
        run.resume(None)
        with monkeypatch.context() as patch:
            patch.setattr(type(fsspec.filesystem("memory")), "pipe_file", slow_down)
            for _ in run.steps(2, capture=dict, final=False):
                run.request_checkpoint()
        assert run.step == 2
        with monkeypatch.context() as patch:
            patch.setattr(type(fsspec.filesystem("memory")), "pipe_file", slow_down)
            with pytest.raises(OSError, match="ClientError: SlowDown"):
                run.checkpoint(dict)


@pytest.mark.parametrize(
    ("options", "what"),
    [({"sharded": True}, r"a state of many parts \(Parts\)"), ({"rescue": True}, "rescue=True")],
    ids=["sharded", "rescue"],
)
def test_what_needs_a_shared_folder_is_refused_at_a_url(options: dict[str, Any], what: str, memory: str) -> None:
    with pytest.raises(BadArgument, match=f"{what} cannot be used with memory://.*; expected a directory"):
        training.session(memory, **options)


def test_several_ranks_at_a_url_do_not_rescue(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ZeroDivisionError), training.session(memory) as run:
        assert [step // (1 - step) for step in run.steps(2, capture=dict)] == []
    assert RemoteDirectory(memory).steps() == []


def test_files_of_others_are_refused_at_a_url(memory: str, tmp_path: Path) -> None:
    with training.session(memory) as run, pytest.raises(BadArgument, match=r"adopt\(\) cannot be used with memory://"):
        run.adopt(tmp_path)


def test_parts_that_were_copied_to_a_url_are_refused(memory: str) -> None:
    directory = opened(memory)
    manifest = directory.write(1, STATE)
    object.__setattr__(manifest, "layout", "parts")
    path = next(path for path in files(memory) if path.endswith("manifest.json"))
    fsspec.filesystem("memory").pipe_file(path, encode_manifest(decode_manifest(encode_manifest(manifest))))
    with pytest.raises(BadArgument, match="has the parts of several ranks"):
        directory.newest_valid()


def test_a_protocol_that_nobody_knows_is_named() -> None:
    with pytest.raises(BadArgument, match=r"nowhere://x/y cannot be used: .*nowhere"):
        RemoteDirectory("nowhere://x/y")


def test_without_fsspec_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(BadArgument, match="pip install fsspec"):
        RemoteDirectory("s3://x/y")
