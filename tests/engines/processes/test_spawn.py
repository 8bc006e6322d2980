"""Starting one replica: its whole environment, and the gate that tells "noted" from "ran"."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.jobs import CheckpointSpec
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.devices.installed import visibility
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.spawn import NEVER_RAN_CODE, port_is_free, replica_environment, why_unknown
from penstock.testing.builders import GIB, device
from tests.engines.agent.builders import KEY, start
from tests.engines.processes.processes import SESSIONS, Program
from tests.smalldisk import small_file_system

OF_LIBC = 3 << 31
"""Signals 32 and 33, which no program sees."""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Return a function that starts a gated program; it is gone when the test ends."""
    programs: list[Program] = []

    def begin(*command: str, **fields) -> Program:
        programs.append(Program(SESSIONS.box("none", Resources()), tmp_path, command, **fields))
        return programs[-1]

    yield begin
    for program in programs:
        program.close()


def environment(devices=(), base=None, **fields) -> dict[str, str]:
    return replica_environment(start(ReplicaKey(7, 2, 3), **fields), devices, DataFolder(Path("/d")), base or {})


def test_a_replica_knows_its_place_in_the_gang():
    found = environment(
        world_size=6, local_rank=1, local_world_size=3, node_rank=1, master_address="10.0.0.1", master_port=21_000
    )
    wanted = {"RANK": "3", "WORLD_SIZE": "6", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "3", "NODE_RANK": "1"}
    wanted |= {"GROUP_RANK": "1", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "21000"}
    assert {name: found[name] for name in wanted} == wanted


def test_a_replica_knows_its_job_and_where_to_save():
    found = environment(
        name="train", node_names=("a", "b"), checkpoint=CheckpointSpec("SIGTERM", "SIGUSR1", 90_000), grace_ms=2_500
    )
    assert {name.removeprefix("PENSTOCK_"): value for name, value in found.items() if "PENSTOCK" in name} == {
        "JOB_ID": "7",
        "JOB_NAME": "train",
        "ATTEMPT": "2",
        "NODES": "a,b",
        "CHECKPOINT_DIR": "/d/jobs/7/checkpoints",
        "SCRATCH_DIR": "/d/jobs/7/work",
        "CHECKPOINT_INTERVAL_S": "90",
        "CHECKPOINT_SIGNAL": "SIGUSR1",
        "GRACE_S": "2.5",
        "REPORT_FILE": "/d/jobs/7/attempt-2.rank-3.report",
        "DEVICES": "",
        "DEVICE_UUIDS": "",
        "DEVICES_SIMULATED": "0",
    }


def test_a_replica_without_devices_sees_none_rather_than_all():
    found = environment(env=(("CUDA_VISIBLE_DEVICES", "0,1"),))
    hidden = {name: value for name, value in visibility(()).items() if not value}
    assert {name: found[name] for name in hidden} == hidden
    assert "CUDA_VISIBLE_DEVICES" in hidden


def test_a_replica_sees_its_own_devices_only():
    found = environment((device(1), device(3, uuid="GPU-3")))
    assert (found["CUDA_VISIBLE_DEVICES"], found["ROCR_VISIBLE_DEVICES"]) == ("1,GPU-3", "")


def test_an_array_member_knows_its_index():
    assert environment(array_id=5, array_index=2)["PENSTOCK_ARRAY_INDEX"] == "2"
    assert "PENSTOCK_ARRAY_INDEX" not in environment()


def test_threads_are_as_many_as_cpus_unless_the_job_says_otherwise():
    four = ReplicaAsk(Resources(4_000))
    assert environment(ask=four)["OMP_NUM_THREADS"] == "4"
    assert environment(ask=four, env=(("OMP_NUM_THREADS", "1"),))["OMP_NUM_THREADS"] == "1"
    assert environment(ask=ReplicaAsk(Resources(0)))["MKL_NUM_THREADS"] == "1"


def test_only_a_little_of_the_agents_environment_is_passed_on():
    found = environment(base={"PATH": "/bin", "HOME": "/h", "SECRET": "s", "PENSTOCK_TOKEN": "t"})
    assert (found["PATH"], found["HOME"]) == ("/bin", "/h")
    assert not {"SECRET", "PENSTOCK_TOKEN"} & set(found)


def test_the_job_cannot_overwrite_what_penstock_sets():
    assert environment(env=(("RANK", "9"), ("PENSTOCK_JOB_ID", "1")))["RANK"] == "3"


def test_the_program_does_not_run_before_the_gate_opens(run, tmp_path):
    program = run("touch", str(tmp_path / "ran"))
    assert program.lives()
    assert not (tmp_path / "ran").exists()
    assert program.open().status() == 0
    assert (tmp_path / "ran").exists()


@pytest.mark.root
def test_a_gate_that_never_opens_leaves_its_mark_also_on_a_disk_without_room(tmp_path):
    with small_file_system(tmp_path / "disk", "1m,nr_inodes=64") as disk:
        program = Program(SESSIONS.box("none", Resources()), disk / "data", ("echo", "ran"))
        with pytest.raises(OSError, match="No space"):
            [(disk / str(number)).touch() for number in range(64)]
        os.close(program.gate._write_end)
        assert program.status() == NEVER_RAN_CODE
        assert why_unknown(program.data, KEY) == "its agent died before it had started"
        program.close()


def test_a_gate_that_never_opens_leaves_a_mark_and_runs_nothing(run, tmp_path):
    program = run("touch", str(tmp_path / "ran"))
    os.close(program.gate._write_end)
    assert program.status() == NEVER_RAN_CODE
    assert program.data.never_ran(KEY).exists()
    assert not (tmp_path / "ran").exists()


def test_a_program_that_exits_like_a_gate_leaves_no_mark(run):
    program = run("sh", "-c", "exit 126").open()
    assert program.status() == NEVER_RAN_CODE
    assert not program.data.never_ran(KEY).exists()


def test_opening_the_gate_of_a_killed_program_is_no_error(run):
    program = run("true")
    os.kill(program.pid, 9)
    assert program.status() == -9
    program.gate.open()


def test_the_program_is_the_leader_of_a_session_of_its_own(run):
    program = run("sh", "-c", 'echo $$ $(cut -d" " -f5,6 /proc/$$/stat)').open()
    assert (program.status(), program.output()) == (0, f"{program.pid} {program.pid} {program.pid}\n")


def test_a_program_begins_without_what_its_agent_blocks_and_ignores(run):
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGQUIT, signal.SIGUSR2)}
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        program = run("sh", "-c", "grep -E '^Sig(Blk|Ign):' /proc/self/status; ulimit -S -c").open()
        assert program.status() == 0
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
        for number, handler in before.items():
            signal.signal(number, handler)
    blocked, ignored, core = program.output().split("\n")[:3]
    assert (int(blocked.split()[1], 16), int(ignored.split()[1], 16) & ~OF_LIBC, core) == (0, 0, "0")


def test_folders_of_a_job_are_closed_whatever_the_umask(run):
    before = os.umask(0)
    try:
        program = run("true").open()
    finally:
        os.umask(before)
    assert program.status() == 0
    folders = (program.data.job(KEY.job_id), program.data.checkpoints(KEY.job_id))
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700, 0o700]
    assert program.data.output(KEY).stat().st_mode & 0o777 == 0o640


def test_output_and_errors_go_into_one_file_in_order(run):
    program = run("sh", "-c", "echo one; echo two >&2; echo three").open()
    assert (program.status(), program.output()) == (0, "one\ntwo\nthree\n")


def test_words_of_a_command_arrive_as_they_are(run):
    program = run("printf", "[%s]", "a b", "$HOME", "", "*").open()
    assert (program.status(), program.output()) == (0, "[a b][$HOME][][*]")


def test_nothing_of_the_gate_is_left_in_the_environment(run):
    program = run("env", env=(("A", "b c"),)).open()
    assert program.status() == 0
    assert "A=b c\n" in program.output()
    assert not [name for name in ("GATES", "NEVER_RAN", "WORKDIR") if f"PENSTOCK_{name}=" in program.output()]


def test_the_program_gets_no_open_file_of_the_gate(run):
    program = run("sh", "-c", "for n in 0 1 2 3; do test -e /proc/$$/fd/$n && echo $n; done; true").open()
    assert (program.status(), program.output()) == (0, "0\n1\n2\n")


def test_a_program_begins_in_its_working_folder(run, tmp_path):
    program = run("pwd", workdir=str(tmp_path)).open()
    assert (program.status(), program.output()) == (0, f"{tmp_path}\n")


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"command": ("/no/such/program",)}, 127, "not found"),
        ({"command": ("/etc/passwd",)}, 126, "denied"),
        ({"command": ("true",), "workdir": "/no/such"}, 126, "/no/such"),
    ],
)
def test_what_cannot_be_run_ends_like_in_a_shell_and_says_why(run, fields, code, words):
    program = run(*fields.pop("command"), **fields).open()
    assert program.status() == code
    assert words in program.output()


def test_a_port_that_somebody_listens_on_is_not_free():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert not port_is_free("127.0.0.1", taken.getsockname()[1])
        port = taken.getsockname()[1]
    assert port_is_free("127.0.0.1", port)
    assert not port_is_free("192.0.2.1", port)


HALF = ReplicaAsk(Resources(), DeviceAsk(1, share_milli=500, share_memory_bytes=20 * GIB))  # of 80 GiB


@pytest.mark.parametrize(
    ("env", "part"), [((), "0.2500"), ((("XLA_PYTHON_CLIENT_MEM_FRACTION", ".1"),), "0.1000"),
                      ((("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.9"),), "0.2500"),
                      ((("XLA_PYTHON_CLIENT_MEM_FRACTION", "all"),), "0.2500")]
)  # fmt: skip
def test_a_program_with_a_part_of_a_device_gets_the_limit_of_its_memory(env, part):
    found = environment((device(0),), ask=HALF, env=env)
    assert found["PENSTOCK_DEVICE_MEMORY_BYTES"] == str(20 * GIB)
    assert found["XLA_PYTHON_CLIENT_MEM_FRACTION"] == part


@pytest.mark.parametrize("ask", [DeviceAsk(1), DeviceAsk(1, profile="1g.10gb"), None])
def test_a_program_with_whole_devices_has_no_such_limit(ask):
    found = environment((device(0),), ask=ReplicaAsk(Resources(), ask))
    assert not {"PENSTOCK_DEVICE_MEMORY_BYTES", "XLA_PYTHON_CLIENT_MEM_FRACTION"} & set(found)
