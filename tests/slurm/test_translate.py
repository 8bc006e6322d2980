"""What scripts ask for becomes a job of ours: places, sizes, times, arrays, queues; and what is said about it."""

import pytest

from penstock.core.config.job import parse_request
from penstock.slurm.arrays import index_at, listed, read_array
from penstock.slurm.directives import Options, directives
from penstock.slurm.options import Unknown
from penstock.slurm.settings import Settings, batch_words, packed, settings_of, unpacked
from penstock.slurm.translate import Cluster, Translated, exported, translate
from penstock.slurm.values import Waits

CLUSTER = Cluster(["default", "batch"], ["default", "gpu"], ["lab", "vision"], ["NVIDIA A100-SXM4-80GB", "V100"],
                  features=["avx", "ib"])  # fmt: skip


def made(*lines: str) -> Translated:
    """Return what `#SBATCH` lines ask for; the fields are those of a job file."""
    script = "#!/bin/bash\n" + "".join(f"#SBATCH {line}\n" for line in lines)
    found = translate(Options(directives(script)), "job.sh", "/home/ann", "login", CLUSTER)
    assert parse_request({**found.fields, "command": "true"})[1] == []
    return found


def fields(*lines: str) -> dict[str, object]:
    found = made(*lines).fields
    return {name: value for name, value in found.items() if name not in ("name", "workdir")}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", {"replicas": 1, "cpus": 1}),
        ("-n1 -c4", {"replicas": 1, "cpus": 4}),
        ("-n4", {"replicas": 1, "cpus": 4}),
        ("-N2 -n8 -c5", {"replicas": 2, "cpus": 20, "topology": "spread"}),
        ("-N3 --ntasks-per-node=4 --mem=8G", {"replicas": 3, "cpus": 4, "memory": "8192MiB", "topology": "spread"}),
        ("-N2 -n5", {"replicas": 1, "cpus": 3, "groups": [{"replicas": 1, "cpus": 2}], "topology": "spread"}),
        ("-n8 --ntasks-per-node=4", {"replicas": 2, "cpus": 4, "topology": "spread"}),
        ("-n5 --ntasks-per-node=4", {
            "replicas": 1, "cpus": 3, "groups": [{"replicas": 1, "cpus": 2}], "topology": "spread"}),
        ("-c4 --mem-per-cpu=500M", {"replicas": 1, "cpus": 4, "memory": "2000MiB"}),
        ("--gres=gpu:2", {"replicas": 1, "cpus": 1, "devices": 2}),
        ("--gres=gpu:v100:1,nvme:100", {"replicas": 1, "cpus": 1, "devices": {"count": 1, "model": ["V100"]}}),
        ("-G a100:2", {"replicas": 1, "cpus": 1, "devices": {"count": 2, "model": ["NVIDIA A100-SXM4-80GB"]}}),
        ("--gres=gpu:a100_3g.20gb:1", {"replicas": 1, "cpus": 1, "devices": {"profile": "3g.20gb"}}),
        ("-N2 -G 8 --cpus-per-gpu=2", {"replicas": 2, "cpus": 8, "devices": 4, "topology": "spread"}),
        ("-n4 --gpus-per-task=1 --mem-per-gpu=1G", {"replicas": 1, "cpus": 4, "memory": "4096MiB", "devices": 4}),
        ("-t 1:30", {"replicas": 1, "cpus": 1, "time_limit": 120}),
        ("-t 1-12", {"replicas": 1, "cpus": 1, "time_limit": 36 * 3600}),
        ("-t UNLIMITED", {"replicas": 1, "cpus": 1}),
        ("-p batch -A vision", {"replicas": 1, "cpus": 1, "queue": "batch", "tenant": "vision"}),
        ("--qos=high", {"replicas": 1, "cpus": 1, "priority": "high"}),
        ("-p gpu,batch", {"replicas": 1, "cpus": 1, "pool": "gpu"}),
        ("--array=1-100:20%2", {"replicas": 1, "cpus": 1, "array": "1-81:20%2"}),
        ("--array=4,7,22", {"replicas": 1, "cpus": 1, "array": "0-2"}),
        ("--mail-type=end,fail", {"replicas": 1, "cpus": 1, "notify": ["END", "FAIL"]}),
        ("-C ib", {"replicas": 1, "cpus": 1, "node_labels": {"wanted": {"feature.ib": "true"}}}),
        ("--comment='run 7'", {"replicas": 1, "cpus": 1, "labels": {"comment": "run 7"}}),
    ],
)  # fmt: skip
def test_a_line_becomes_fields_of_a_job(line, expected):
    assert fields(line) == expected


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-t soon", "--time=soon (line 2): expected a time such as"),
        ("-N0", "--nodes=0 (line 2): expected a number of nodes"),
        ("-n few", "--ntasks=few (line 2): expected a whole number from 1"),
        ("--mem=4X", "--mem=4X (line 2): expected a size such as 4G"),
        ("--mem=4G --mem-per-cpu=1G", "--mem and --mem-per-cpu exclude each other"),
        ("-p nowhere", "--partition=nowhere (line 2): expected a queue or pool of the server: default, batch, gpu"),
        ("-A nobody", "--account=nobody (line 2): expected a tenant of the server: lab, vision"),
        ("--gres=gpu:h900:1", "no node has devices of the type h900; there are: NVIDIA A100-SXM4-80GB, V100"),
        ("-N3 -G 8", "8 devices cannot be dealt evenly to 3 nodes"),
        ("--array=5-1", "--array=5-1 (line 2): expected indexes such as"),
        ("--array=1-4%0", "expected indexes such as"),
        ("--array=0-999999", "at most 100000 indexes"),
        ("--signal=USR9@5", "--signal=USR9@5 (line 2): expected a signal and seconds"),
        ("-d afterok", "expected afterok:JOB"),
        ("-d after:3", "expected afterok:JOB"),
        ("-d afterok:3?afterany:4", "waits for all of its dependencies"),
        ("--open-mode=read", "--open-mode=read (line 2): expected append or truncate"),
        ("--begin=tomorrow", "--begin (line 2) is not supported"),
        ("-N20000", "at most 10,000 nodes"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_what_was_expected(line, said):
    with pytest.raises(Unknown) as error:
        made(line)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--gres=gpu:1,nvme:100", "--gres=nvme:100 is left out"),
        ("-N 2-4", "--nodes=2-4: it gets 2"),
        ("-N4 -n2", "4 nodes for 2 tasks: it gets 2"),
        ("-p batch,gpu", "--partition=batch,gpu: it goes to batch"),
        ("--qos=long", "--qos=long (line 2) is left out"),
        ("--mail-type=END,TIME_LIMIT_80", "--mail-type=TIME_LIMIT_80 is left out"),
        ("-d aftercorr:3", "aftercorr waits for the whole array"),
        ("--mem=0", "--mem=0: it gets no limit"),
        ("-C '[avx|ib]'", "--constraint=[avx|ib] (line 2) is left out"),
    ],
)
def test_what_is_understood_otherwise_is_said(line, said):
    assert [note for note in made(line).notes if said in note] != []


def test_a_script_that_asks_for_nothing_special_is_told_nothing():
    assert made("-J a -t 5 -n 2 -c 2 --mem=1G -o %j.out -p batch --requeue").notes == []


def test_dependencies_are_read_with_members_of_arrays():
    found = made("-d afterok:12:13_4,afternotok:9,singleton").dependencies
    assert found.jobs == (Waits("after_ok", 12), Waits("after_ok", 13, 4), Waits("after_failed", 9))
    assert found.singleton


def test_settings_go_to_the_job_as_words_and_come_back():
    settings = made("-N2 -n5 -c2 --array=4,7,22 -o 'a b_%A' --signal=B:10@90 --open-mode=append").settings
    assert (settings.array, settings.array_count, settings.signal, settings.tasks, settings.cpus) == (
        "4,7,22", 3, "B:USR1@90", "3,2", "6,4")  # fmt: skip
    assert settings_of(settings.words()) == settings
    command = ["python", "-P", "-m", "penstock.batch", *settings.words(), "--", "job.sh", "x"]
    assert batch_words(command) == (settings, ["job.sh", "x"])
    assert batch_words(["python", "train.py"]) is None


def test_script_and_environment_are_carried_whole():
    noise = "".join(chr(33 + n * n % 89) for n in range(100_000))
    variables = packed("#!/bin/sh\necho \udcff", {"A": "b\n", "NOISE": noise})
    assert all(len(value) <= 65_536 for value in variables.values())
    assert unpacked(variables) == ("#!/bin/sh\necho \udcff", {"A": "b\n", "NOISE": noise})
    with pytest.raises(ValueError, match="cannot be read"):
        unpacked({"PENSTOCK_BATCH_0": "nonsense"})


def test_too_large_a_script_is_refused():
    with pytest.raises(ValueError, match="may have 262,144"):
        packed("".join(chr(32 + (n * n * 7919 + n // 3 * 104729) % 50_000) for n in range(300_000)), {})


@pytest.mark.parametrize(
    ("export", "expected"),
    [
        ("", {"A": "1", "B": "2", "SLURM_X": "s"}),
        ("ALL", {"A": "1", "B": "2", "SLURM_X": "s"}),
        ("ALL,C=3", {"A": "1", "B": "2", "SLURM_X": "s", "C": "3"}),
        ("NONE", {"SLURM_X": "s"}),
        ("A,C=3", {"A": "1", "C": "3", "SLURM_X": "s"}),
    ],
)
def test_exported_variables_are_those_asked_for_and_never_the_token(export, expected):
    assert exported(export, {"A": "1", "B": "2", "SLURM_X": "s", "PENSTOCK_TOKEN": "t"}) == expected


def test_a_job_inside_a_job_gets_none_of_the_outer_ones_variables():
    outer = {"A": "1", "SLURM_JOB_ID": "3", "SLURM_NTASKS": "8", "PENSTOCK_BATCH_TASKS": "8"}
    assert exported("ALL", outer) == {"A": "1"}


@pytest.mark.parametrize(
    ("text", "indexes", "ours"),
    [
        ("0-3", (0, 1, 2, 3), "0-3"),
        ("1-9:4%2", (1, 5, 9), "1-9:4%2"),
        ("7", (7,), "7-7"),
        ("3,1,2,2", (1, 2, 3), "1-3"),
        ("1-3,9", (1, 2, 3, 9), "0-3"),
        ("1,2,3,4,10%3", (1, 2, 3, 4, 10), "0-4%3"),
    ],
)
def test_arrays_have_each_index_once_in_order(text, indexes, ours):
    found = read_array(text)
    assert (found.indexes, found.ours()) == (indexes, ours)
    assert read_array(listed(indexes)).indexes == indexes
    if not found.is_series:
        assert [index_at(listed(indexes), at) for at in range(len(indexes))] == list(indexes)


def test_no_setting_has_a_default_that_its_word_would_not_say():
    assert settings_of([]) == Settings()
    with pytest.raises(ValueError, match="no setting"):
        settings_of(["colour=red"])
