"""What Slurm 22.05.8 printed, as values; names that would be other rows; words that are not known."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.model.jobs import ExitInfo
from penstock.core.model.weaker import PASSED
from penstock.engines.slurm.commands import SlurmCommands
from penstock.engines.slurm.jobs import (
    ACCOUNT,
    QUEUE,
    SlurmJob,
    Unread,
    ask_of,
    elements_of,
    is_of,
    less_of,
    of_accounts,
    of_queue,
)
from penstock.engines.slurm.nodes import fields_of, node_spec, read_nodes
from penstock.engines.slurm.reading import SlurmAway, SlurmConfig, SlurmReader, config_of, moment
from penstock.engines.slurm.rows import Column, account_rows, divider, queue_format, queue_rows
from penstock.engines.slurm.states import PHASES, UnknownState, exit_of, of_pair, of_status, phase_of
from penstock.formats.slurm import size_bytes
from tests.engines.slurm.conftest import BETWEEN, recorded


def queue() -> dict[str, SlurmJob]:
    found = [job for job, _ in of_queue(queue_rows(recorded("squeue.txt"), QUEUE, BETWEEN))]
    assert not [job for job in found if isinstance(job, Unread)]
    return {job.number: job for job in found if isinstance(job, SlurmJob)}


def accounts() -> list[SlurmJob]:
    found = list(of_accounts(account_rows(recorded("sacct.txt"), ACCOUNT, BETWEEN)))
    return [job for job in found if isinstance(job, SlurmJob)]


def test_squeue_says_each_element_and_each_end():
    jobs = queue()
    assert {job.number: job.phase for job in jobs.values() if job.phase != "ended"} == {
        "28": "running", "29": "running", "32": "waiting", "39": "waiting"
    }  # fmt: skip
    train = jobs["28"]
    assert (train.user, train.account, train.partitions, train.qos) == ("root", "root", ("main",), "normal")
    assert (train.submit_s, train.start_s, train.end_s, train.limit_ms) == (1795685206, 1795685206, 0, 3_600_000)
    assert (train.name, train.nodes, train.node_names()) == ("train|one\ntwo", 1, ["n1"])
    assert jobs["29"].node_names() == ["n2", "n3"]
    assert jobs["32"].partitions == ("main", "urgent")
    assert (jobs["39"].start_s, jobs["39"].restarts, jobs["39"].reason) == (0, 1, "BeginTime")
    ends = {number: (job.state, job.code, job.signal) for number, job in jobs.items() if job.phase == "ended"}
    assert ends["36"] == ("FAILED", 3, 0)
    assert ends["35"] == ("FAILED", 137, 0), "squeue has the code as it was"
    assert ends["34"] == ("FAILED", 0, 9)
    assert ends["33"] == ("CANCELLED", 0, 15)
    assert ends["31_3"] == ("COMPLETED", 0, 0)
    assert not jobs["30"].ran, "it failed before it had a node"


def test_sacct_says_each_run():
    runs = {(run.number, run.state): run for run in accounts()}
    assert runs["39", "REQUEUED"].phase == "again"
    assert (runs["39", "REQUEUED"].start_s, runs["39", "REQUEUED"].end_s) == (1795685209, 1795685211)
    assert runs["33", "CANCELLED by 0"].phase == "ended"
    assert (runs["28", "RUNNING"].name, runs["28", "RUNNING"].end_s) == ("train|one\ntwo", 0)
    assert runs["29", "RUNNING"].node_names() == ["n2", "n3"]


def test_elements_of_an_array_that_never_began_share_a_line():
    line = replace(queue()["32"], number="6", phase="ended", state="CANCELLED")
    numbers = ("6_1", "6_2", "6", "16_1", "6+1")
    assert [is_of(number, line) for number in numbers] == [True, True, True, False, False]
    assert [is_of(number, replace(line, number="6_[1-2%1]")) for number in numbers] == [True, True, False, False, False]
    ran = replace(line, start_s=5, hosts="n1")
    assert [is_of(number, ran) for number in numbers] == [False, False, True, False, False]
    assert [one.number for one in elements_of(replace(line, number="6_[1-2,4%1]"))] == ["6_1", "6_2", "6_4"]
    assert [list(elements_of(replace(line, number=number))) for number in ("6", "6_1", "6_[x")] == [[], [], []]


def test_what_a_job_asks_for():
    jobs, pools = queue(), {}
    train = ask_of(jobs["28"], pools)
    assert (train.replicas, train.each.device_count, train.each.devices.models) == (1, 2, ("a100",))
    assert (train.each.host.cpu_milli, train.each.host.memory_bytes) == (4000, size_bytes("1000M"))
    uneven = ask_of(jobs["29"], pools)
    assert (uneven.replicas, uneven.each.host.cpu_milli) == (2, 2500)
    assert [[str(rule) for rule in term] for term in uneven.label_terms] == [["partition.main", "feature.fast"]]
    held = ask_of(jobs["32"], pools)
    assert [[str(rule) for rule in term] for term in held.label_terms] == [["partition.main"], ["partition.urgent"]]
    untracked = replace(jobs["29"], tres="cpu=4,node=2", gpus_asked=("gres:gpu:a100:3", ""))
    assert [group.device_total for group in (ask_of(untracked, pools),)] == [6]
    assert ask_of(replace(untracked, gpus_asked=("", "gres:gpu:4")), pools).device_total == 4
    less = less_of(train, 0)
    assert (less.each.host.cpu_milli, less.each.device_count) == (0, 2)
    assert (less_of(train, 1).each.device_count, less_of(train, 2)) == (0, None)


def test_nodes_and_those_that_take_nothing():
    nodes, broken = list(read_nodes(recorded("nodes.txt"))), "fan is broken = bad [root@1795685211]"
    assert [(node.name, node.cpus, node.memory_bytes, node.closed, node.gone) for node in nodes] == [
        (f"n{number}", 4, 4000 * 2**20, f"DRAIN: {broken}" if number == 4 else "", False) for number in (1, 2, 3, 4)
    ]
    spec = node_spec(nodes[3], ())
    assert [(device.index, device.model, device.vendor) for device in spec.devices] == [
        (index, "a100", "nvidia") for index in range(4)
    ]
    assert [name for name, _ in spec.labels] == ["feature.amd", "feature.fast", "partition.main", "partition.urgent"]
    assert (spec.pool, node_spec(nodes[0], {"urgent"}).pool) == ("default", "urgent")
    assert (spec.engine, node_spec(nodes[0], (), PASSED).engine) == ("slurm-shadow", "slurm-passed")
    with pytest.raises(ValueError, match="'CPUTot'"):
        list(read_nodes("NodeName=n1 State=IDLE"))


@pytest.mark.parametrize(
    ("state", "gone", "closed"),
    [("IDLE", False, ""), ("MIXED+DRAIN", False, "DRAIN"), ("DOWN*", True, "DOWN*"),
     ("IDLE*", True, "IDLE*"),
     ("DOWN+NOT_RESPONDING", True, "DOWN+NOT_RESPONDING"), ("ALLOCATED", False, ""), ("IDLE+CLOUD", False, ""),
     ("IDLE+MAINT", False, "MAINT"), ("FUTURE", True, "FUTURE")],
)  # fmt: skip
def test_the_states_of_nodes(state, gone, closed):
    (node,) = read_nodes(recorded("nodes.txt").splitlines()[0].replace("State=ALLOCATED", f"State={state}", 1))
    assert (node.state, node.gone, node.closed) == (state, gone, closed)


def test_a_reason_is_no_other_field():
    assert fields_of("NodeName=n1 State=IDLE Reason=look State=DOWN [root@1]")["State"] == "IDLE"


def test_the_configuration():
    assert config_of(recorded("config.txt")) == SlurmConfig("shadow", "22.05.8", 300, accounts=True)
    assert not config_of("ClusterName = a\nAccountingStorageType = accounting_storage/none").accounts
    assert not config_of("ClusterName = a\nAccountingStorageTRES = cpu,mem,node").gpus_tracked
    with pytest.raises(SlurmAway):
        config_of("slurm_load_ctl_conf error")
    assert moment(1795685206) == "2026-11-26T09:26:46"


def test_a_new_state_is_not_guessed():
    text = recorded("squeue.txt").replace("RUNNING", "DREAMING")
    unread = [job for job, _ in of_queue(queue_rows(text, QUEUE, BETWEEN)) if isinstance(job, Unread)]
    assert {(job.number, job.why) for job in unread} == {
        (number, "its state 'DREAMING' is not known") for number in ("28", "29")
    }
    with pytest.raises(UnknownState):
        phase_of("")


def test_every_state_of_slurm_has_a_meaning():
    # as `man squeue` of 22.05 lists them, with what 23.02 to 25.11 added
    documented = (
        "BOOT_FAIL CANCELLED COMPLETED CONFIGURING COMPLETING DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PENDING "
        "PREEMPTED RUNNING RESV_DEL_HOLD REQUEUE_FED REQUEUE_HOLD REQUEUED RESIZING REVOKED SIGNALING SPECIAL_EXIT "
        "STAGE_OUT STOPPED SUSPENDED TIMEOUT LAUNCH_FAILED RECONFIG_FAIL EXPEDITING"
    )
    assert sorted(PHASES) == sorted(documented.split())
    assert {word for word in PHASES if PHASES[word] == "running"} >= {"RUNNING", "SUSPENDED", "CONFIGURING"}
    assert PHASES["COMPLETING"] == "leaving"


@pytest.mark.parametrize(
    ("state", "code", "signal", "expected"),
    [
        ("COMPLETED", 0, 0, ExitInfo(0)),
        ("FAILED", 3, 0, ExitInfo(3)),
        ("FAILED", 0, 9, ExitInfo(signal=9)),
        ("FAILED", 0, 0, ExitInfo(1, note="Slurm says FAILED, and no code", observed=True)),
        ("CANCELLED by 1000", 0, 15, ExitInfo(signal=15, stop_sent=True)),
        ("CANCELLED", 42, 0, ExitInfo(42, stop_sent=True)),
        ("TIMEOUT", 0, 15, ExitInfo(signal=15, note="time limit reached", observed=True)),
        ("TIMEOUT", 0, 0, ExitInfo(1, note="time limit reached", observed=True)),
        ("OUT_OF_MEMORY", 0, 125, ExitInfo(signal=9, note="out of memory", observed=True)),
        ("NODE_FAIL", 0, 0, ExitInfo(1, note="a node failed", observed=True)),
        ("NODE_FAIL", 1, 0, ExitInfo(1, note="a node failed", observed=True)),
        ("PREEMPTED", 0, 0, ExitInfo(problem="Slurm: PREEMPTED", stop_sent=True)),
        ("REQUEUED", 0, 0, ExitInfo(problem="Slurm: REQUEUED", stop_sent=True)),
    ],
)
def test_how_a_run_ended(state, code, signal, expected):
    assert exit_of(state, code, signal) == expected


def test_codes_as_squeue_and_as_sacct_write_them():
    assert [of_status(status) for status in (0, 768, 35072, 9, 15)] == [(0, 0), (3, 0), (137, 0), (0, 9), (0, 15)]
    assert [of_pair(text) for text in ("0:0", "3:0", "0:9", "0:125")] == [(0, 0), (3, 0), (0, 9), (0, 125)]


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=30)


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=6))
def test_no_text_of_a_user_becomes_another_row(names):
    between, columns = divider(), (Column("JobArrayID", 8), Column("Name", 40))
    text = "".join(f"{n:<8}{between}{name:<40}{between}\n" for n, (name, _) in enumerate(names))
    found = [row for row, _ in queue_rows(text, columns, between)]
    assert [row["JobArrayID"] for row in found] == [str(n) for n in range(len(names))]
    text = "".join(f"{n}{between}{name}{between}0:0\n" for n, (name, _) in enumerate(names))
    rows = list(account_rows(text, ("JobID", "JobName", "ExitCode"), between))
    assert [(row["JobID"], row["ExitCode"]) for row in rows] == [(str(n), "0:0") for n in range(len(names))]


def test_a_table_that_was_cut_off_is_refused():
    text = recorded("squeue.txt")
    with pytest.raises(ValueError, match="rows of 20 columns"):
        list(queue_rows(text[:-40], QUEUE, BETWEEN))
    text = recorded("sacct.txt")
    with pytest.raises(ValueError, match="the last one has"):
        list(account_rows(text[: text.rindex("REQUEUED")], ACCOUNT, BETWEEN))
    assert list(account_rows("", ACCOUNT, BETWEEN)) == list(queue_rows("", QUEUE, BETWEEN)) == []


def test_nodes_that_do_not_fit_their_column_are_asked_for():
    columns = (Column("JobArrayID", 40), Column("NodeList", 8))
    rows = list(queue_rows(recorded("nodelist.txt"), columns, BETWEEN))
    assert {row["JobArrayID"] for row, cut in rows if cut} == set()
    text = recorded("nodelist.txt").replace("n[2-3]  ", "n[2-3,5,")
    assert [row["JobArrayID"] for row, cut in queue_rows(text, columns, BETWEEN) if cut] == ["29"]
    assert queue_format(columns, "~") == "JobArrayID:40~,NodeList:8~"


def test_nodes_that_were_cut_are_asked_for_once_and_a_bad_answer_is_no_fault():
    whole = recorded("squeue.txt").replace(f"{'n[2-3]':<256}", "n[2-3]".ljust(255) + "x", 1)
    asked: list[tuple[str, ...]] = []

    class Answers(SlurmCommands):
        second = "29~n[2-3]~\n"

        async def run(self, *command: str) -> str:
            asked.append(command)
            between = command[command.index("-O") + 1].rpartition(":")[2].lstrip("0123456789")
            return self.second.replace("~", between) if "-j" in command else whole.replace(BETWEEN, between)

    reader = SlurmReader(Answers())
    read = asyncio.run(reader.queue())
    assert read.jobs["29"].node_names() == ["n2", "n3"]
    assert [command[-1] for command in asked[1:]] == ["29"]
    Answers.second = "29~"
    with pytest.raises(SlurmAway, match="squeue: expected rows of 2 columns"):
        asyncio.run(reader.queue())
