"""Replicas in containers of real runtimes, started by a real agent: they end as without, and leave nothing."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.messages.orders import FreezeReplica, SaveReplica, StopReplica, ThawReplica
from penstock.core.model.containers import ImageAsk, Mount
from penstock.core.model.jobs import CheckpointSpec, ExitInfo
from penstock.core.model.resources import ReplicaAsk, Resources
from penstock.engines.containers.start import container_name
from penstock.engines.processes import procfs
from tests.engines.agent.fakeserver import FakeServer
from tests.engines.containers import images
from tests.engines.processes.test_containment import needs_groups
from tests.server.harness import until

pytestmark = [needs_groups, pytest.mark.root]


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    """A server with one agent of root, on a node with Podman and with the image; accounts can pass its folder."""
    images.need("podman", "runc")
    images.imported()
    root = Path(tempfile.mkdtemp(prefix="penstock-containers-"))
    root.chmod(0o711)
    made = FakeServer(root / "data")
    made.data.root.chmod(0o711)
    try:
        made.agent()
        made.ready()
        yield made
    finally:
        made.close()
        shutil.rmtree(root, ignore_errors=True)


def contained(server: FakeServer, *command: str, **fields):
    """Start a replica in a container of the image."""
    return server.start(*command, **{"image": ImageAsk(images.NAME, pull="never")} | fields)


def nothing_left(server: FakeServer, key) -> None:
    """Nothing is recorded of a replica's container, and no process of it is there."""
    name = container_name(server.data, key)
    listed = ["podman", "ps", "--all", "--filter", f"name={name}", "--format", "{{.Names}}"]
    until(lambda: not subprocess.run(listed, capture_output=True, text=True, check=True).stdout, f"{name} is gone")
    report = f"PENSTOCK_REPORT_FILE={server.data.report(key)}".encode()
    assert [pid for pid in os.listdir("/proc") if pid.isdigit() and report in procfs.environment_of(int(pid))] == []
    until(lambda: not server.data.keeper("n1", key).exists(), "its plan is gone")


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        (("true",), ExitInfo(0)),
        (("sh", "-c", "exit 7"), ExitInfo(7)),
        (("sh", "-c", "exit 126"), ExitInfo(126)),
        (("sh", "-c", "kill -9 $$"), ExitInfo(137)),
        (("no-such-program",), ExitInfo(127)),
        (("/bin/notes",), ExitInfo(126)),
    ],
)
def test_programs_end_as_they_end_without_a_container(server, command, wanted):
    key = contained(server, *command)
    assert server.ended(key) == wanted
    nothing_left(server, key)


def test_what_a_program_prints_is_all_of_its_output(server):
    key = contained(server, "sh", "-c", "echo out; echo err >&2; printf end")
    server.ended(key)
    assert server.data.output(key).read_text() == "out\nerr\nend"


def test_a_program_sees_its_folders_its_variables_and_no_others_of_the_node(server, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "set").write_text("rows")
    mounts = (Mount(str(tmp_path / "data"), "/data", read_only=True),)
    lines = [
        "cat /data/set; touch /data/new 2>/dev/null || echo ' read-only'",
        "touch $PENSTOCK_CHECKPOINT_DIR/saved $PENSTOCK_SCRATCH_DIR/made",
        'echo \'{"kind": "progress", "step": 5}\' >> $PENSTOCK_REPORT_FILE; pwd; echo "$TEXT $RANK $HOME"; ls /; id -u',
    ]
    image = ImageAsk(images.NAME, "never", mounts=mounts, folders=(str(tmp_path),))
    key = contained(server, "sh", "-c", "\n".join(lines), image=image, env=(("TEXT", "two\nlines"),))
    assert server.ended(key) == ExitInfo(0)
    folder = str(server.data.work(key.job_id))
    told = server.data.output(key).read_text().splitlines()
    assert told[:4] == ["rows read-only", folder, "two", f"lines 0 {folder}"]
    assert told[-1] == "0"
    assert "data" in told
    assert "home" not in told
    assert (server.data.checkpoints(key.job_id) / "saved").exists()
    assert [seen.step for seen in server.progress(key)] == [5]
    assert not (tmp_path / "data" / "new").exists()


@pytest.mark.parametrize("way", ["handler", "shell around it", "no handler"])
def test_a_stop_reaches_the_program_which_may_save_and_leave(server, way):
    saves = "trap 'echo saved; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    command = {"handler": saves, "shell around it": f'sh -c "{saves}"; exit $?', "no handler": "echo ready; sleep 60"}
    key = contained(server, "sh", "-c", command[way])
    server.said(key, "ready")
    server.order(StopReplica(key, 30_000))
    assert server.ended(key) == ExitInfo(143 if way == "no handler" else 5, stop_sent=True)
    nothing_left(server, key)


def test_a_program_that_ignores_the_stop_is_killed_after_its_grace(server):
    key = contained(
        server, "sh", "-c", "trap '' TERM; (trap '' TERM; sleep 60) & echo ready; while :; do sleep 0.05; done"
    )
    server.said(key, "ready")
    server.order(StopReplica(key, 300))
    assert server.ended(key) == ExitInfo(signal=9, stop_sent=True)
    nothing_left(server, key)


def test_a_program_may_save_and_carry_on(server):
    checkpoint = CheckpointSpec("SIGTERM", "SIGUSR1")
    key = contained(
        server, "sh", "-c", "trap 'echo saved' USR1; echo ready; while :; do sleep 0.05; done", checkpoint=checkpoint
    )
    server.said(key, "ready")
    server.order(SaveReplica(key))
    server.said(key, "saved")
    server.order(StopReplica(key, 0))
    server.ended(key)


def test_out_of_memory_is_told_as_that(server):
    limited = ReplicaAsk(Resources(memory_bytes=64 << 20))
    key = contained(server, "sh", "-c", "dd if=/dev/zero of=/dev/null bs=128M count=1; exit 3", ask=limited)
    ended = server.ended(key)
    assert (ended.code, ended.observed) == (3, True)
    assert "out of memory: limit 64 MiB, killed by the kernel" in ended.note


def test_a_container_is_frozen_and_goes_on(server):
    key = contained(server, "sh", "-c", "echo ready; while [ ! -e $PENSTOCK_SCRATCH_DIR/go ]; do sleep 0.05; done")
    server.said(key, "ready")
    server.order(FreezeReplica(key, 1))
    server.seen(key, "frozen")
    (server.data.work(key.job_id) / "go").touch()
    server.order(ThawReplica(key))
    assert server.ended(key) == ExitInfo(0)


def test_an_account_has_nothing_of_root_inside(server):
    account = pwd.getpwnam("nobody")
    lines = "id -u; id -g; grep -e CapEff -e CapBnd -e NoNewPrivs /proc/self/status; touch $PENSTOCK_CHECKPOINT_DIR/x"
    key = contained(server, "sh", "-c", lines, account="nobody")
    assert server.ended(key) == ExitInfo(0)
    told = server.data.output(key).read_text().split()
    assert told[:2] == [str(account.pw_uid), str(account.pw_gid)]
    assert told[2:] == ["CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1"]
    assert (server.data.checkpoints(key.job_id) / "x").stat().st_uid == account.pw_uid


def test_an_account_mounts_nothing_that_it_could_not_reach(server, tmp_path):
    (tmp_path / "closed").mkdir(0o700)
    inner = tmp_path / "closed" / "inner"
    inner.mkdir(0o755)
    image = ImageAsk(images.NAME, "never", mounts=(Mount(str(inner), "/inner"),), folders=(str(tmp_path),))
    ended = server.ended(contained(server, "ls", "/inner", image=image, account="nobody"))
    assert (ended.code, ended.note) == (126, f"its image cannot be used: {inner}: Permission denied")


@pytest.fixture
def open_folder(server):
    """A folder that accounts can pass and list, beside one of root's with a secret."""
    made = server.data.root.parent / "open"
    (made / "inner").mkdir(mode=0o755, parents=True)
    closed = server.data.root.parent / "closed"
    closed.mkdir(mode=0o700)
    (closed / "secret").write_text("secret")
    yield made
    shutil.rmtree(made)
    shutil.rmtree(closed)


SHOWN = "ls $0 2>&1; cat $0/secret 2>&1; id -u"


def seen_inside(server, path, image, **fields):
    """Return what a job of an account says of a path, and how it ended."""
    key = contained(server, "sh", "-c", SHOWN, str(path), image=image, account="nobody", **fields)
    ended = server.ended(key)
    return server.data.output(key).read_text(), ended


@pytest.mark.parametrize("name", ["x,source={closed},chown=true", "x:{closed}", 'x"y', "x,y"])
def test_a_folder_is_mounted_or_refused_whatever_its_name_says(server, open_folder, name):
    there = open_folder / name.format(closed=str(server.data.root.parent / "closed").replace("/", "_"))
    there.mkdir()
    (open_folder / "link").symlink_to(there)
    image = ImageAsk(images.NAME, "never", folders=(str(open_folder),))
    for path in (open_folder / "link", there):
        said, ended = seen_inside(server, path, image, workdir=str(path))
        assert (ended.code, "no runtime can mount" in ended.note) == (126, True), (said, ended)


def test_a_link_out_of_the_folders_that_jobs_may_mount_is_refused(server, open_folder):
    (open_folder / "out").symlink_to("/usr")
    for mounts, workdir in [((Mount(str(open_folder / "out"), "/out"),), ""), ((), str(open_folder / "out"))]:
        image = ImageAsk(images.NAME, "never", mounts=mounts, folders=(str(open_folder),))
        ended = seen_inside(server, "/out", image, workdir=workdir)[1]
        assert (ended.code, f"{open_folder}/out leads to /usr, which no job may mount" in ended.note) == (126, True)


def test_a_folder_that_no_setting_allows_is_not_mounted_to_start_in(server, open_folder):
    ended = seen_inside(server, open_folder, ImageAsk(images.NAME, "never"), workdir=str(open_folder))[1]
    assert (ended.code, "jobs of this cluster mount no folders" in ended.note) == (126, True)


def test_what_a_variable_names_is_not_mounted(server, open_folder):
    root = server.data.root
    env = (("A", f"{root}/../open"), ("B", str(root / "jobs")))
    said, ended = seen_inside(server, f"{root}/../open", ImageAsk(images.NAME, "never"), env=env)
    assert ended == ExitInfo(0)
    assert "inner" not in said


def test_an_image_that_is_not_there_ends_the_job_with_the_reason(server):
    ended = server.ended(contained(server, "true", image=ImageAsk("localhost/no-such:1", "never")))
    assert (ended.code, ended.problem) == (126, "")
    assert "node n1 has no image localhost/no-such:1, and pull is never" in ended.note


def test_a_file_of_the_node_is_no_image_though_an_earlier_version_accepted_the_job(server, tmp_path):
    ended = server.ended(contained(server, "true", image=ImageAsk(f"oci-archive:{tmp_path}/a.tar")))
    assert (ended.code, ended.note.rpartition(": ")[2][-25:]) == (126, "is no image of a registry")


def test_replicas_of_a_gang_reach_each_other(server):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    serves = contained(server, "sh", "-c", f"echo hello > $HOME/said; busybox httpd -f -p {address} -h $HOME")
    tries = f"until busybox wget -q -O - http://{address}/said; do sleep 0.1; done"
    assert server.ended(contained(server, "sh", "-c", tries)) == ExitInfo(0)
    server.order(StopReplica(serves, 5_000))
    assert server.ended(serves).code == 143


def test_a_node_says_which_runtimes_work_once_it_has_tried_them(server):
    server.ended(contained(server, "true"))
    until(lambda: dict(server.hellos[-1][0].labels).get("penstock.image/name", "").startswith("podman-"), "it says so")
