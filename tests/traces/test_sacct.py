"""What accounting of Slurm says of one job in several rows: runs that were cut off, components, limits."""

from pathlib import Path

import pytest

from penstock.core.model.jobs import GangAsk, GroupAsk
from penstock.core.model.resources import ReplicaAsk, Resources
from penstock.traces import Trace, TraceError, load

COLUMNS = "Cluster|JobID|Submit|Start|End|Elapsed|State|Timelimit|AllocTRES"


def sacct(tmp_path, *rows: str) -> Trace:
    path = tmp_path / "jobs.txt"
    path.write_text("\n".join([COLUMNS, *rows]) + "\n")
    return load(path)


def row(job: str, submit: int, state: str, tres: str = "cpu=1", limit: str = "10", cluster: str = "a") -> str:
    """Return a row of a job that starts 10 s after its submit and runs for 60 s."""
    return f"{cluster}|{job}|{submit}|{submit + 10}|{submit + 70}|00:01:00|{state}|{limit}|{tres}"


@pytest.mark.parametrize("state", ["PREEMPTED", "NODE_FAIL"])
def test_of_a_job_that_was_cut_off_the_last_run_counts(tmp_path, state):
    trace = sacct(tmp_path, row("7", 0, state), row("7", 100, state), row("7", 200, "COMPLETED"))
    assert [(job.name, job.submit_ms, job.work.ends) for job in trace.jobs] == [("7", 200_000, "succeeded")]
    assert [note[:40] for note in trace.notes if "put back" in note] == ["2 rows left out: the job was put back or"]


def test_a_job_that_was_cut_off_and_did_not_come_again_failed(tmp_path):
    trace = sacct(tmp_path, row("7", 0, "PREEMPTED"), row("8", 100, "COMPLETED"))
    assert [(job.name, job.work.ends) for job in trace.jobs] == [("7", "failed"), ("8", "succeeded")]


def test_components_join_the_run_that_they_belong_to(tmp_path):
    first = [row("7+0", 0, "NODE_FAIL", "cpu=1"), row("7+1", 0, "NODE_FAIL", "cpu=2")]
    again = [row("7+0", 100, "COMPLETED", "cpu=1"), row("7+1", 100, "COMPLETED", "cpu=2")]
    (job,) = sacct(tmp_path, *first, *again).jobs
    assert job.submit_ms == 100_000
    assert job.spec.ask == GangAsk(1, ReplicaAsk(Resources(1_000)), others=(GroupAsk(1, ReplicaAsk(Resources(2_000))),))


def test_jobs_of_two_clusters_with_one_number_stay_apart(tmp_path):
    rows = [row("7", 0, "PREEMPTED"), row("7", 100, "COMPLETED", cluster="b")]
    rows += [row("8+0", 200, "COMPLETED"), row("8+1", 200, "COMPLETED", cluster="b")]
    trace = sacct(tmp_path, *rows)
    assert [job.name for job in trace.jobs] == ["7", "7#2", "8", "8#3"]
    assert [job.spec.ask.replica_total for job in trace.jobs] == [1, 1, 1, 1]


def test_who_succeeded_has_a_limit_that_allows_it(tmp_path):
    rows = [row("1", 0, "COMPLETED", limit="00:00:50"), row("2", 0, "TIMEOUT", limit="00:00:50")]
    trace = sacct(tmp_path, *rows, row("3", 0, "COMPLETED", limit="UNLIMITED"))
    assert [job.spec.time_limit_ms for job in trace.jobs] == [60_000, 50_000, 0]
    assert [note for note in trace.notes if "limit" in note] == [
        "1 jobs succeeded after more time than their limit: it is raised to what they ran"
    ]


def test_what_became_of_a_suspended_job_is_told_by_its_end(tmp_path):
    (job,) = sacct(tmp_path, "a|7|0|10|500|00:01:00|COMPLETED|10|cpu=1").jobs
    assert (job.work.run_ms, job.seen.ended_ms) == (60_000, 500_000)


def test_parts_of_devices_are_counted_as_not_kept(tmp_path):
    rows = [row("1", 0, "COMPLETED", "cpu=1,gres/shard=2"), row("2", 0, "COMPLETED", "cpu=1,gres/gpu=1,gres/shard=4")]
    notes = sacct(tmp_path, *rows).notes
    assert next(note for note in notes if "shard" in note).startswith("1 jobs had parts of devices")


def test_a_name_with_the_separator_in_it_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(TraceError, match="line 2: found '10 fields', expected 9 fields") as caught:
        sacct(tmp_path, row("1", 0, "COMPLETED") + "|x")
    assert caught.value.hint.startswith("leave out columns of free text, such as JobName")


ROW = "7|ann|vision|gpu|high|2024-01-01T00:00:00|2024-01-01T00:01:00|2024-01-01T00:02:00|00:01:00|FAILED|10|cpu=2|2|9"
COMMAND = (
    "sacct -a -P -S now-90days -o "
    "JobID,User,Account,Partition,QOS,Submit,Start,End,Elapsed,State,Timelimit,AllocTRES,NNodes,Priority"
)


def written(tmp_path, *lines: str) -> Path:
    path = tmp_path / "jobs.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("kind", [None, "sacct"])
def test_a_header_in_other_letter_case_is_the_same_header(tmp_path, kind):
    rows = [row("1", 0, "FAILED", "cpu=2")]
    expected = load(written(tmp_path, COLUMNS, *rows))
    for header in (COLUMNS.lower(), COLUMNS.upper(), COLUMNS.replace("|", " | ")):
        assert load(written(tmp_path, header, *rows), kind) == expected


def test_two_columns_of_one_name_in_other_letters_are_refused(tmp_path):
    with pytest.raises(TraceError, match="columns with different names"):
        load(written(tmp_path, COLUMNS + "|user|User", row("1", 0, "COMPLETED") + "|a|b"))


@pytest.mark.parametrize("kind", [None, "sacct"])
@pytest.mark.parametrize("ending", ["", "|"])
def test_rows_without_a_header_have_the_columns_of_the_documented_command(tmp_path, kind, ending):
    never = ROW.replace("7|", "7.batch|", 1)
    trace = load(written(tmp_path, *(f"{line}{ending}" for line in (never, ROW))), kind)
    (job,) = trace.jobs
    assert (job.name, job.user, job.spec.tenant, job.spec.queue) == ("7", "ann", "vision", "gpu")
    assert (job.work.run_ms, job.work.ends, job.spec.time_limit_ms) == (60_000, "failed", 600_000)
    assert (job.spec.ask, job.spec.priority) == (GangAsk(2, ReplicaAsk(Resources(1_000))), 9)
    assert any(note.startswith("the source has no header: its columns count as JobID, User") for note in trace.notes)
    assert "1 rows left out: they are steps of jobs" in trace.notes


def test_a_fault_of_rows_without_a_header_names_their_line(tmp_path):
    with pytest.raises(TraceError, match="line 2, column State: found 'LOST'"):
        load(written(tmp_path, ROW, ROW.replace("FAILED", "LOST")))


@pytest.mark.parametrize("kind", [None, "sacct"])
@pytest.mark.parametrize("line", [ROW + "|x|y", ROW.replace("2024-01-01T00:00:00", "soon"), "a|b|c"])
def test_columns_that_cannot_be_known_are_asked_for(tmp_path, kind, line):
    with pytest.raises(TraceError) as caught:
        load(written(tmp_path, line), kind)
    assert caught.value.hint.startswith("if it is from sacct (--kind sacct), it needs a header, or these columns")
    assert caught.value.hint.endswith(COMMAND)


@pytest.mark.parametrize("kind", [None, "sacct"])
@pytest.mark.parametrize("line", ["JobID           JobName  Partition", "JobID,Submit,Start,End"])
def test_output_without_separators_is_known_for_what_it_is(tmp_path, kind, line):
    with pytest.raises(TraceError) as caught:
        load(written(tmp_path, line), kind)
    assert caught.value.hint == f"this looks like sacct without -P, which divides its columns by |: {COMMAND}"


def test_a_missing_column_says_which_command_gives_all(tmp_path):
    with pytest.raises(TraceError, match="a column 'Submit' in the header") as caught:
        load(written(tmp_path, "JobID|JobName|Partition|State", "1|a|b|COMPLETED"))
    assert caught.value.hint.endswith(COMMAND)


def test_the_documents_name_the_command_whose_columns_are_known_without_a_header():
    docs = Path(__file__).parents[2] / "docs"
    columns = COMMAND.rpartition(" ")[2]
    assert all(columns in (docs / name).read_text() for name in ("traces.md", "import.md"))
