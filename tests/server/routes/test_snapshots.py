"""Sending a folder over HTTP: what goes over the line, what is refused, and that nobody reaches what is another's."""

import asyncio
import contextlib
import struct
from pathlib import Path

import pytest

from penstock.api.snapshots import NewSnapshot
from penstock.client import ApiProblem, AsyncClient, Client, packing
from penstock.client.snapshots import named
from penstock.core.model import folder_snapshots as fs
from penstock.testing.builders import cluster_file
from penstock.testing.server import InProcessServer

PEOPLE = {
    "tenants": [{"name": "red"}, {"name": "blue"}],
    "users": [
        {"name": "ann", "tenants": {"red": "member", "blue": "member"}},
        {"name": "ben", "tenants": {"red": "member"}},
        {"name": "viv", "tenants": {"red": "viewer"}},
    ],
}


@pytest.fixture(scope="module")
def server():
    with InProcessServer({**cluster_file(job_account="nobody"), **PEOPLE}) as running:
        yield running


@pytest.fixture(scope="module")
def ann(server):
    with _client(server, "ann") as client:
        yield client


@pytest.fixture(scope="module")
def ben(server):
    with _client(server, "ben") as client:
        yield client


@contextlib.contextmanager
def _client(server, user, **limits):
    token = server.client.create_token({"user": user, **limits}).token
    client = Client.at(server.url, token=token, insecure=True)
    with client:
        yield client


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = tmp_path / "project"
    made.mkdir()
    for index in range(20):
        (made / f"file-{index:02}").write_bytes(bytes([index]) * 10_000)
    return made


def job(name: str, tenant: str = "red") -> dict:
    return {"command": "true", "tenant": tenant, "workdir": {"snapshot": name}}


def problem(client, request) -> ApiProblem:
    with pytest.raises(ApiProblem) as caught:
        client.submit_request(request)
    return caught.value


def test_a_second_time_only_the_question_is_sent_and_then_only_changes(ann, folder):
    first = ann.send_folder(folder)
    assert (first.files, first.bytes) == (20, 200_000)
    assert first.sent_bytes > 200_000
    again = ann.send_folder(folder)
    assert (again.name, again.sent_bytes < 100) == (first.name, True)
    (folder / "file-03").write_bytes(b"new" * 5_000)
    (folder / "file-04").unlink()
    changed = ann.send_folder(folder)
    assert changed.name != first.name
    assert 15_000 < changed.sent_bytes < 16_500


def test_a_server_that_never_saw_the_former_one_gets_all_of_it(ann, ben, folder):
    sent = ann.send_folder(folder)
    assert ben.send_folder(folder).name == sent.name
    (folder / "more").write_text("x")
    with InProcessServer() as other:
        assert other.client.send_folder(folder).sent_bytes > 200_000


def test_a_job_starts_in_what_its_submitter_has_sent(server, ann, folder):
    name = ann.send_folder(folder).name
    made = ann.submit_request([job(name), {**job(name), "array": 3}]).jobs
    server.settle()
    spec = server.service.controller.state.jobs[made[0].id].spec
    assert spec.snapshot.endswith(f"/{name}")
    assert spec.workdir == ""


def test_the_name_of_anothers_snapshot_is_of_no_use(ann, ben, folder):
    name = ann.send_folder(folder).name
    (folder / "file-00").write_bytes(b"of ann alone")
    name = ann.send_folder(folder).name
    error = problem(ben, job(name))
    assert [(one.code, one.field) for one in error.problems] == [("unknown_snapshot", "workdir.snapshot")]
    assert not ben.declare_snapshot(NewSnapshot(name)).complete
    assert not ben.declare_snapshot(NewSnapshot("1" * 64, (), name)).files_known


def test_a_token_for_one_tenant_does_not_reach_what_others_have_sent(server, ann, folder):
    name = ann.send_folder(folder).name
    with _client(server, "ann", tenants=["blue"]) as client:
        assert problem(client, job(name, "blue")).problems[0].code == "unknown_snapshot"
        client.send_folder(folder)
        assert client.submit_request(job(name, "blue")).jobs


def test_a_folder_that_nobody_packed_is_refused_with_the_way(ann):
    error = problem(ann, job("."))
    assert "expected the name of a snapshot that you have sent" in str(error)
    assert "penstock submit" in error.problems[0].hint


def test_a_plan_needs_no_folder(ann):
    assert ann.plan({"command": "true", "tenant": "red", "workdir": {"snapshot": "."}}).jobs


def test_where_nodes_do_not_unpack_folders_none_is_taken(server, ann, folder, monkeypatch):
    name = ann.send_folder(folder).name
    monkeypatch.setattr(server._backend, "snapshots", None)
    assert problem(ann, job(name)).details.code == "unavailable"
    with pytest.raises(ApiProblem, match="do not unpack snapshots"):
        ann.send_folder(folder)


@pytest.mark.parametrize("field", ["setup", "python", "conda"])
def test_where_nodes_prepare_nothing_jobs_that_need_it_are_refused(server, ann, monkeypatch, field):
    value = {"setup": "make", "python": {"project": "."}, "conda": "vision"}[field]
    monkeypatch.setattr(server._backend, "snapshots", None)
    for ask in (ann.submit, ann.plan):
        with pytest.raises(ApiProblem, match=f"{field} is given, but the nodes of this server prepare nothing"):
            ask({"command": "true", "tenant": "red", field: value})


def test_a_viewer_sends_nothing(server, folder):
    with _client(server, "viv") as client:
        for send in (lambda: client.send_chunks(b""), lambda: client.declare_snapshot(NewSnapshot("0" * 64))):
            with pytest.raises(ApiProblem) as caught:
                send()
            assert caught.value.details.code == "forbidden"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "there is no chunk"),
        (b"\0\0", "cut off"),
        (struct.pack(">I", 0), "a chunk of 0 bytes"),
        (struct.pack(">I", 5) + b"1234", "a chunk of 5 bytes"),
        (struct.pack(">I", fs.CHUNK_BYTES + 1) + bytes(fs.CHUNK_BYTES + 1), "expected 1 to 1048576"),
        ((struct.pack(">I", 1) + b"x") * 4_097, "more than 4096 chunks"),
    ],
)
def test_what_are_no_chunks_is_refused(ann, body, said):
    with pytest.raises(ApiProblem, match=said):
        ann.send_chunks(body)


def test_a_list_that_cannot_be_is_refused_by_its_path(ann):
    files = (fs.SnapshotFile("../x", "file"),)
    with pytest.raises(ApiProblem, match=r"\.\./x.*relative"):
        ann.declare_snapshot(NewSnapshot(fs.name_of(fs.encoded(files)), files))
    with pytest.raises(ApiProblem, match="64 hexadecimal digits"):
        ann.declare_snapshot(NewSnapshot("x"))


def test_a_folder_that_changes_while_it_is_sent_is_packed_again(ann, folder, monkeypatch):
    read = packing.read_chunk

    def changing(where, one, index):
        monkeypatch.setattr(packing, "read_chunk", read)
        (folder / one.path).write_bytes(b"changed meanwhile")
        return read(where, one, index)

    (folder / "file-00").write_bytes(b"never sent before")
    monkeypatch.setattr(packing, "read_chunk", changing)
    sent = ann.send_folder(folder)
    assert sent.name == packing.packed(folder).name


def test_the_asynchronous_client_sends_folders_too(server, folder):
    async def both():
        token = server.client.create_token({"user": "ann"}).token
        async with AsyncClient(Client.at(server.url, token=token, insecure=True)) as client:
            return await client.send_folder(folder)

    assert asyncio.run(both()).files == 20


def test_every_folder_of_a_request_is_sent_once_and_names_stay():
    asked: list[str] = []

    def name_of(folder: str) -> str:
        asked.append(folder)
        return "named"

    names = {"workdir": {"snapshot": "0" * 64}}
    request = {"jobs": [{"workdir": {"snapshot": "."}}, names, {"workdir": "/x"}, "no job"], "defaults": {}}
    found = named(request, name_of)
    assert found["jobs"] == [{"workdir": {"snapshot": "named"}}, names, {"workdir": "/x"}, "no job"]
    assert asked == ["."]
