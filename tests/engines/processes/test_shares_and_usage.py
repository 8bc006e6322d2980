"""What a replica may take of a node's CPUs, and what it has taken: real processes, real control groups."""

import os
import sys
from pathlib import Path

import pytest

from penstock.core.model.resources import Resources
from penstock.engines.agent.journal import ExitBook, Journal
from penstock.engines.agent.replicas import Replicas
from penstock.engines.processes import cgroup_files, cgroup_v1, cgroup_v2
from penstock.engines.processes.boxes import Usage
from penstock.engines.processes.cgroup_v1 import CgroupV1
from penstock.engines.processes.cgroup_v2 import CgroupV2, weight
from penstock.engines.processes.paths import DataFolder
from tests.engines.agent.builders import KEY, start
from tests.engines.processes.processes import SESSIONS
from tests.engines.processes.strong import KINDS, STRONG, needs_groups, setting
from tests.server.harness import until

MIB = 2**20
WORKS = """
import os, sys, time
def burn(seconds):
    while time.process_time() < seconds:
        pass
if os.fork() == 0:
    burn(0.05)
    os._exit(0)
os.wait()
burn(0.05)
held = bytearray(24 << 20)
if os.fork() == 0:
    held = bytearray(b"1") * (24 << 20)
    print("ready", flush=True)
    time.sleep(60)
os.wait()
"""


@needs_groups
@pytest.mark.root
@pytest.mark.parametrize(
    ("workload_class", "cpu_milli", "shares", "weighed", "quota"),
    [
        ("training", 1_500, 1_536, 150, 150_000),
        ("inference", 2_000, 2_048, 200, 200_000),
        ("data", 2_000, 1_024, 100, 200_000),
        ("api", 2_000, 512, 50, 200_000),
        ("api", 5, 2, 1, 1_000),
    ],
)
def test_cpus_are_shared_by_class_and_bounded_by_what_was_asked_for(
    run, workload_class, cpu_milli, shares, weighed, quota
):
    program = run(STRONG, "true", limits=Resources(cpu_milli=cpu_milli), workload_class=workload_class)
    assert int(setting(program.box, "cpu/cpu.shares", "cpu.weight")) in (shares, weighed)
    assert setting(program.box, "cpu/cpu.cfs_quota_us", "cpu.max").split()[0] == str(quota)
    assert setting(program.box, "cpu/cpu.cfs_period_us", "cpu.max").split()[-1] == "100000"


@needs_groups
@pytest.mark.root
def test_a_box_that_is_found_again_keeps_its_share(run):
    limits = Resources(cpu_milli=2_000)
    program = run(STRONG, "sleep", "60", limits=limits, workload_class="api")
    before = setting(program.box, "cpu/cpu.shares", "cpu.weight")
    again = STRONG.box(f"n1.{KEY}", limits)
    assert setting(again, "cpu/cpu.shares", "cpu.weight") == before


@pytest.mark.parametrize(
    ("shares", "weighed"), [(2, 1), (256, 25), (512, 50), (1_024, 100), (98_304, 9_600), (262_144, 10_000)]
)
def test_a_weight_is_to_others_as_the_shares_are(shares, weighed):
    assert weight(shares) == weighed


def test_replicas_that_fill_a_node_cannot_take_all_processes_of_the_machine_together():
    whole = cgroup_files.tasks_max(1000 * os.cpu_count())
    assert 4 * cgroup_files.tasks_max(250 * os.cpu_count()) <= whole
    assert cgroup_files.tasks_max(10**9) == whole
    assert cgroup_files.tasks_max(0) == cgroup_files.TASKS_MIN


@needs_groups
@pytest.mark.root
def test_a_replica_cannot_take_all_processes_of_the_machine(run, monkeypatch):
    first = run(STRONG, "true")
    assert int(setting(first.box, "pids/pids.max", "pids.max")) == cgroup_files.tasks_max(0)
    first.close()
    for version in (cgroup_v1, cgroup_v2):
        monkeypatch.setattr(version, "tasks_max", lambda cpu_milli: 5)
    program = run(STRONG, "sh", "-c", "for i in 1 2 3 4 5 6 7 8; do sleep 60 & done; wait")
    until(lambda: "fork" in program.output(), "a fork is refused")
    assert len(program.box.pids()) <= 5


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.kind.split()[0])
def test_what_a_replica_has_used_is_measured_children_that_have_ended_included(run, kind):
    program = run(kind, sys.executable, "-S", "-c", WORKS)
    until(lambda: program.output() == "ready\n", "it has worked")
    used = program.box.usage()
    assert 80_000 <= used.cpu_us < 60_000_000  # in ticks of 10 ms, where processes are added up
    assert 24 * MIB <= used.memory_bytes < 500 * MIB
    assert used.memory_bytes <= used.memory_peak_bytes + MIB


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.kind.split()[0])
def test_what_a_replica_reads_from_a_disk_is_measured(run, kind, tmp_path):
    block = tmp_path / "block"
    block.write_bytes(bytes(4 * MIB))
    os.sync()
    if not os.major(block.stat().st_dev):
        block = Path("/dev/vda")  # files here are in memory; an emulated machine has a disk without any
    if not os.access(block, os.R_OK):
        pytest.skip("no disk")
    code = (
        "import mmap, os, sys, time; f = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT); "
        "print(os.readv(f, [mmap.mmap(-1, 4 << 20)]), flush=True); time.sleep(60)"
    )
    program = run(kind, sys.executable, "-S", "-c", code, str(block))
    if "Error" in until(program.output, "it has read"):
        pytest.skip("no direct reading from this file system")
    assert 4 * MIB <= program.box.usage().read_bytes < 60 * MIB


def test_without_a_first_process_a_session_has_used_nothing_that_is_known():
    assert SESSIONS.box("n1.none", Resources()).usage() == Usage()


def test_files_that_a_kernel_lacks_leave_figures_out(tmp_path):
    assert CgroupV2(tmp_path).box("b", Resources()).usage() == Usage()
    (tmp_path / "freezer").mkdir()
    assert CgroupV1({"freezer": tmp_path / "freezer"}).box("b", Resources()).usage() == Usage(
        read_bytes=0, written_bytes=0
    )


def test_the_figures_of_version_2_are_read_as_its_documentation_says(tmp_path):
    box = CgroupV2(tmp_path).box("b", Resources())
    files = {
        "cpu.stat": "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n",
        "memory.current": "9000\n",
        "memory.stat": "anon 1000\nfile 8000\ninactive_file 5000\n",
        "memory.peak": "12000\n",
        "io.stat": "8:0 rbytes=100 wbytes=7 rios=1 wios=1 dbytes=0 dios=0\n259:1 rbytes=1 wbytes=2 rios=1 wios=1\n",
    }
    for name, text in files.items():
        (tmp_path / "b" / name).write_text(text)
    assert box.usage() == Usage(1500, 4000, 12000, 101, 9)


@needs_groups
@pytest.mark.root
def test_an_agent_gives_the_class_of_an_order_to_its_box_and_says_what_each_of_its_replicas_uses(tmp_path, caplog):
    caplog.set_level("INFO")
    journal, ended = Journal(tmp_path / "journal"), []
    exits = ExitBook(tmp_path / "exits")
    replicas = Replicas("n1", DataFolder(tmp_path), STRONG, {}, journal, exits, lambda key, _: ended.append(key))
    assert f"processes of n1 are held by {STRONG.kind}" in caplog.text
    replicas.start(start(KEY, ("sleep", "60"), workload_class="data"))
    try:
        box = STRONG.box(f"n1.{KEY}", Resources(cpu_milli=1_000))
        assert setting(box, "cpu/cpu.shares", "cpu.weight") in ("512", "50")
        assert [(key, used.cpu_us is not None) for key, used in replicas.usage().items()] == [(KEY, True)]
    finally:
        replicas.kill(KEY)
        until(lambda: replicas.reap() or replicas.poll(0) or ended, "it has ended")
        journal.close()
    assert replicas.usage() == {}
