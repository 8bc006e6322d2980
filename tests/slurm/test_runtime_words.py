"""Names of output files, variables of scripts and tasks, and how steps are dealt out."""

import pytest

from penstock.batch.srun import Sizes, sizes_of
from penstock.formats.hostlist import compressed, expand
from penstock.slurm.options import Unknown
from penstock.slurm.patterns import file_name, symbols
from penstock.slurm.settings import Settings
from penstock.slurm.variables import Facts, Step, counts, job_variables, script_variables, task_variables

ALONE = symbols(job=7, name="train", user="ann", node="n1")
MEMBER = symbols(job=9, name="train", user="ann", node="n1", array=(8, 3))


@pytest.mark.parametrize(
    ("pattern", "values", "expected"),
    [
        ("slurm-%j.out", ALONE, "slurm-7.out"),
        ("%5j_%3t", ALONE, "00007_000"),
        ("%A_%a", MEMBER, "8_3"),
        ("%A_%4a.%j", MEMBER, "8_0003.9"),
        ("%a", ALONE, "4294967294"),
        ("%x-%u-%N-%n-%s", ALONE, "train-ann-n1-0-batch"),
        ("%5x", ALONE, "train"),
        ("100%%_%q", ALONE, "100%_%q"),
        (r"a\%j", ALONE, "a%j"),
        ("%99j", ALONE, "0000000007"),
    ],
)
def test_output_names_are_those_of_slurm(pattern, values, expected):
    assert file_name(pattern, values) == expected


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["n1", "n2", "n3"], "n[1-3]"),
        (["n1"], "n1"),
        (["n9", "n10", "n12"], "n[9-10,12]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["a", "b1", "b3"], "a,b[1,3]"),
        (["n1", "m2", "n2"], "n1,m2,n2"),
        (["login"], "login"),
    ],
)
def test_node_lists_are_short_and_expand_again(names, text):
    assert compressed(names) == text
    assert expand(text) == names


def test_counts_are_written_as_slurm_writes_them():
    assert [counts(each) for each in ([2, 2], [3, 2], [4], [1, 1, 2])] == ["2(x2)", "3,2", "4", "1(x2),2"]


def facts(**more: object) -> Facts:
    return Facts(**({"job": 7, "name": "a", "nodes": ["n1", "n2"], "uid": 1, "gid": 2, "user": "ann"} | more))


def test_variables_that_were_not_asked_for_are_not_set():
    found = job_variables(Settings(), facts(nodes=["n1"]))
    absent = ("NTASKS", "NPROCS", "CPUS_PER_TASK", "MEM_PER_NODE", "GPUS", "JOB_GPUS", "ARRAY_TASK_ID", "RESTART_COUNT")
    assert [name for name in absent if f"SLURM_{name}" in found] == []
    assert (found["SLURM_JOB_ID"], found["SLURM_JOB_NODELIST"], found["SLURM_TASKS_PER_NODE"]) == ("7", "n1", "1")


def test_variables_that_were_asked_for_are_set():
    settings = Settings(nodes=2, ntasks=5, tasks="3,2", cpus="6,4", cpus_per_task=2, mem_per_node=4096, gpus_on_node=1,
                        array_count=3, array_min=4, array_max=22, array_step=1)  # fmt: skip
    found = script_variables(settings, facts(array=(6, 22), attempt=2, devices="1"), "host")
    expected = {
        "SLURM_NTASKS": "5", "SLURM_JOB_CPUS_PER_NODE": "6,4", "SLURM_CPUS_ON_NODE": "6", "SLURM_MEM_PER_NODE": "4096",
        "SLURM_ARRAY_JOB_ID": "6", "SLURM_ARRAY_TASK_ID": "22", "SLURM_ARRAY_TASK_COUNT": "3", "SLURM_JOB_GPUS": "1",
        "SLURM_ARRAY_TASK_MIN": "4", "SLURM_RESTART_COUNT": "1", "SLURM_JOB_NODELIST": "n[1-2]",
    }  # fmt: skip
    assert {name: found.get(name) for name in expected} == expected


def test_ranks_go_through_the_places_in_blocks():
    step = Step(0, (0, 1), (3, 2))
    found = [task_variables(step, ["n1", "n2"], *at) for at in ((0, 0), (0, 2), (1, 0), (1, 1))]
    assert [(one["SLURM_PROCID"], one["SLURM_LOCALID"], one["SLURM_NODEID"], one["SLURM_GTIDS"]) for one in found] == [
        ("0", "0", "0", "0,1,2"), ("2", "2", "0", "0,1,2"), ("3", "0", "1", "3,4"), ("4", "1", "1", "3,4")]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "job", "expected"),
    [
        ({}, [3, 2], Sizes((0, 1), (3, 2))),
        ({"tasks": 5}, [3, 2], Sizes((0, 1), (3, 2))),
        ({"tasks": 2}, [3, 2], Sizes((0, 1), (1, 1))),
        ({"tasks": 1}, [3, 2], Sizes((0,), (1,))),
        ({"nodes": 1, "tasks": 4}, [3, 2], Sizes((0,), (4,))),
        ({"nodes": 1, "relative": 1}, [3, 2], Sizes((1,), (1,))),
        ({"per_node": 2}, [3, 2], Sizes((0, 1), (2, 2))),
        ({"tasks": 8}, [4], Sizes((0,), (8,))),
    ],
)
def test_steps_are_dealt_out_over_the_places(asked, job, expected):
    given = {"nodes": 0, "tasks": 0, "per_node": 0, "relative": 0} | asked
    assert sizes_of(**given, job=job, asked=True) == expected


def test_a_step_larger_than_its_job_is_refused():
    with pytest.raises(Unknown, match="needs 3 nodes, and the job has 2"):
        sizes_of(3, 0, 0, 0, [1, 1], asked=False)
