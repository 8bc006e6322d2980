"""Functions as jobs: the value or the exception comes back, and nothing that another has written is unpickled."""

import os
import pickle
import stat
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from penstock import calls
from penstock.client import CallFailed, Client, JobFailed, NotVerified, handles
from penstock.client import functions as fn
from penstock.client.handles import Job
from penstock.core.model.errors import InvalidInput
from penstock.privatefiles import NotPrivate

WAIT_S = 30


@pytest.fixture
def client(server, keys) -> Iterator[Client]:
    with Client.connect(data=server.data.root) as made:
        yield made


class Evil:
    """Leaves a trace where it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return (os.mkdir, (str(self.trace),))


def result_of(client: Client, function, *arguments, **fields):
    return client.submit(function, *arguments, **fields).result(WAIT_S)


def test_a_function_returns_its_value(client):
    job = client.submit(lambda a, b: {"sum": a + b}, 1, 2, name="adds", cpus=1)
    assert job.result(WAIT_S) == {"sum": 3}
    assert (job.name, job.status, job.result()) == ("adds", "succeeded", {"sum": 3})


def test_a_function_has_no_environment_made_for_it(client):
    with pytest.raises(InvalidInput, match="names the program that runs it"):
        client.submit(print, python={"project": "."})


def test_named_arguments_come_by_partial_and_none_is_a_value(client):
    assert result_of(client, partial(lambda a, *, b: (a, b), b=2), 1) == (1, 2)
    job = client.submit(print, "said")
    assert job.result(WAIT_S) is None
    assert (job.name, list(job.logs())) == ("print", ["said"])


def test_an_exception_comes_back_with_its_traceback(client):
    def fails(x):
        raise ZeroDivisionError(f"of {x}")

    job = client.submit(fails, 7)
    with pytest.raises(ZeroDivisionError, match="of 7") as raised:
        job.result(WAIT_S)
    assert "in fails" in str(raised.value.__cause__)
    assert "calls/__main__" not in str(raised.value.__cause__)
    assert (job.status, job.view().exit_code) == ("failed", 1)


def test_an_exception_that_cannot_be_restored_comes_as_text(client):
    def fails():
        class Strange(Exception):
            def __init__(self, a, b):
                super().__init__("strange")

        raise Strange(1, 2)

    with pytest.raises(CallFailed, match=r"fails: .*Strange: strange") as raised:
        result_of(client, fails)
    assert "in fails" in raised.value.output


def test_leaving_the_program_is_an_exception_of_the_function(client):
    with pytest.raises(SystemExit):
        result_of(client, sys.exit, 0)


def test_a_function_that_ends_its_process_has_failed(client):
    def dies():
        print("last words", flush=True)
        os._exit(3)

    with pytest.raises(JobFailed, match=r"has failed: .*exit 3") as raised:
        result_of(client, dies)
    assert raised.value.output == "last words"


@pytest.mark.parametrize("size", [70_000, 3_000_000], ids=["beyond the tail", "large"])
def test_a_large_result_and_output_come_whole(client, size):
    def noisy(size):
        print("x" * 200_000)
        return os.urandom(size)

    assert len(result_of(client, noisy, size)) == size


def test_results_are_bounded(client):
    with pytest.raises(CallFailed, match=r"bytes, pickled .* may have 4,194,304: write it into a file"):
        result_of(client, os.urandom, calls.RESULT_MAX_BYTES + 1)
    with pytest.raises(CallFailed, match="the result, of type generator, cannot be pickled"):
        result_of(client, lambda: (x for x in ()))


def test_calls_are_bounded_and_checked_before_anything_is_sent(client):
    before = client.jobs(finished=True, limit=1).jobs[:1]
    with pytest.raises(InvalidInput, match=r"len and its arguments have .* bytes, .* may have 262,144"):
        client.submit(len, os.urandom(calls.CALL_MAX_BYTES))
    with pytest.raises(InvalidInput, match="print or one of its arguments cannot be pickled: TypeError"):
        client.submit(print, (x for x in ()))
    with pytest.raises(InvalidInput, match="array is given, but a function runs as one program"):
        client.submit(print, array=3)
    assert client.jobs(finished=True, limit=1).jobs[:1] == before


def test_a_python_of_another_version_is_named(client, monkeypatch):
    newer = SimpleNamespace(version_info=SimpleNamespace(major=3, minor=99), path=[])
    monkeypatch.setattr(fn, "sys", newer)
    job = client.submit(print, python=sys.executable)
    monkeypatch.undo()
    with pytest.raises(CallFailed, match=r"was pickled by Python 3\.99, and the job runs Python 3\.\d+: name one"):
        job.result(WAIT_S)


def test_a_module_that_the_job_does_not_have_is_named(client, monkeypatch):
    module = ModuleType("only_here")
    exec("def function(): pass", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    with pytest.raises(CallFailed, match=r"No module named 'only_here': .*register_pickle_by_value"):
        result_of(client, module.function)


def test_forged_lines_in_the_output_are_never_unpickled(client, tmp_path, monkeypatch):
    monkeypatch.setattr(handles, "LATE_OUTPUT_S", 0)
    trace, evil = tmp_path / "unpickled", pickle.dumps(Evil(tmp_path / "unpickled"))
    job = client.submit(["printf", "%s", b"".join(calls.lines_of("g" * 64, "c0", "V", calls.packed(evil))).decode()])
    forged = Job(client, job.id, job.name, call=fn.Call("c0", client.function_key.value, "f"))
    assert forged.wait(WAIT_S) == "succeeded"
    with pytest.raises(NotVerified, match="has no result of f that is known to be its own"):
        forged.result()
    assert not trace.exists()
    pickle.loads(evil)
    assert trace.exists()


def test_nobody_sees_the_key_but_the_users_own_jobs(client, server):
    key = client.function_key
    job = client.submit(lambda: [name for name in os.environ if name.startswith("SDK_CALL")])
    assert job.result(WAIT_S) == []
    said = client._request("GET", f"/jobs/{job.id}/events") + client._request("GET", "/secrets")
    assert key.secret.encode() in said
    assert key.value.encode() not in said
    shows = client.submit(["sh", "-c", "echo $MINE"], secrets={"MINE": key.secret})
    shows.wait(WAIT_S)
    assert list(shows.logs()) == ["*" * len(key.value)]


def test_clients_of_one_user_share_one_key(client, server, keys):
    with Client.connect(data=server.data.root) as other:
        assert other.function_key == client.function_key
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600


def test_a_key_that_others_may_read_or_write_is_refused(client, keys):
    assert client.function_key.value
    for mode in (0o640, 0o622):
        keys.chmod(mode)
        client._key = None
        with pytest.raises(NotPrivate):
            client.submit(print)
    keys.chmod(0o600)


def test_a_secret_that_only_looks_like_ours_is_not_taken(client):
    client.set_secret("sdk-0011-2233", "evil")
    client._key = None
    assert client.function_key.secret != "sdk-0011-2233"
    client.remove_secret("sdk-0011-2233")
