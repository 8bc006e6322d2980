"""What a node of an allocation offers, and the environment of its agent."""

import os
import stat
from pathlib import Path

from penstock.engines.slurm.pilot import onnode
from penstock.engines.slurm.pilot.onnode import become_agent, held_devices, offered, ports_of, without_slurm

BATCH = {"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "8", "SLURM_MEM_PER_NODE": "4000"}


def test_a_node_offers_the_cpus_and_the_memory_of_its_allocation():
    assert offered(BATCH, lambda: [0, 1]) == ["--cpus", "8", "--memory", "4000MiB", "--devices", ""]
    each = {"SLURM_CPUS_ON_NODE": "8", "SLURM_MEM_PER_CPU": "500"}
    assert offered(each, list) == ["--cpus", "8", "--memory", "4000MiB", "--devices", ""]
    whole = {"SLURM_CPUS_ON_NODE": "8", "SLURM_MEM_PER_NODE": "0"}
    assert offered(whole, list) == ["--cpus", "8", "--devices", ""]


def test_devices_are_exactly_those_of_the_allocation():
    some = BATCH | {"SLURM_JOB_GPUS": "1,3", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert offered(some, lambda: [0, 1, 2, 3])[-1] == "1,3"
    assert offered(some, lambda: [0, 1])[-1] == "0,1"  # Slurm shows an allocation its own alone
    assert offered(some, lambda: [0])[-1] == ""
    assert offered(BATCH | {"SLURM_STEP_GPUS": "2", "SLURM_JOB_GPUS": "1,3"}, lambda: [0, 1, 2, 3])[-1] == "2"
    assert held_devices({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}) == []


def test_simulated_devices_are_as_many_as_the_allocation_holds():
    some = BATCH | {"SLURM_JOB_GPUS": "1,3"}
    assert offered(some, list, "a100")[-2:] == ["--simulated", "2:a100"]
    assert offered(BATCH, list, "a100")[-2:] == ["--devices", ""]


def test_jobs_do_not_take_themselves_for_the_allocation():
    said = {**BATCH, "CUDA_VISIBLE_DEVICES": "0", "SLURM_CONF": "/etc/slurm.conf", "HOME": "/root", "PMI_RANK": "0"}
    assert without_slurm(said) == {"SLURM_CONF": "/etc/slurm.conf", "HOME": "/root", "PENSTOCK_BOXES": "sessions"}


def test_nodes_of_allocations_on_one_machine_have_ports_of_their_own():
    ranges = {ports_of(job, number) for job in range(40, 44) for number in range(4)}
    assert len(ranges) == 16
    assert ports_of(3, 0) == "23100-23199"


def test_an_agent_begins_in_a_new_folder_of_its_own_whatever_lies_in_the_shared_one(tmp_path, monkeypatch):
    planted = tmp_path / f"penstock-{os.geteuid()}-7-0"
    planted.mkdir(0o777)
    watched, given = [], []
    monkeypatch.setattr(onnode, "_waited", lambda _: True)
    monkeypatch.setattr(onnode, "_watched", lambda own, _: watched.append(own))
    monkeypatch.setattr(onnode.starts, "become", lambda *words, **_: given.extend(words))
    for name, value in BATCH.items():
        monkeypatch.setenv(name, value)
    become_agent(tmp_path / "pilot", tmp_path, "a100")
    own = Path(given[given.index("--data") + 1])
    assert (watched, stat.S_IMODE(own.stat().st_mode), own.parent) == ([own], 0o700, tmp_path)
    assert own != planted
