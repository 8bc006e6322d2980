"""Files that are not what they are taken for: always a TraceError, with the place and the nearest right word."""

import gzip
import shutil
from pathlib import Path

import pytest

from penstock.formats import files as text
from penstock.traces import KINDS, TraceError, load
from penstock.traces.loaders import build, shapes

SAMPLES = Path(__file__).parent / "samples"
HELIOS = "job_id,arrival_s,service_sec,gpu_count\n"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
SACCT = "JobID|Submit|Start|End|State|AllocTRES|Timelimit\n"
SACCT_ROW = "1|2024-01-01T00:00:00|2024-01-01T00:01:00|2024-01-01T00:02:00|{}|{}|{}\n"


def refused(path: Path, kind: str | None = None) -> TraceError:
    with pytest.raises(TraceError) as caught:
        load(path, kind)
    return caught.value


def written(tmp_path: Path, content: str | bytes, name: str = "given.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("kind", "content", "line", "column", "found", "expected"),
    [
        ("helios", HELIOS + "1,0,5,1\n2,0,x,1\n", 3, "service_sec", "x", "a number of seconds"),
        ("helios", HELIOS + "1,0,5,-1\n", 2, "gpu_count", "-1", "a whole number from 1 to 10000"),
        ("helios", HELIOS + "1,0,5,1.5\n", 2, "gpu_count", "1.5", "a whole number from 1 to 10000"),
        ("helios", HELIOS + "1,0,5,1_0\n", 2, "gpu_count", "1_0", "a whole number from 1 to 10000"),
        ("helios", HELIOS + "1,0,5,٣\n", 2, "gpu_count", "٣", "a whole number from 1 to 10000"),
        ("helios", HELIOS + "1,0,1e308,1\n", 2, "service_sec", "1e308", "a number of seconds"),
        ("helios", HELIOS + "1,0,nan,1\n", 2, "service_sec", "nan", "a number of seconds"),
        ("helios", HELIOS + f"1,0,5,{'9' * 5000}\n", 2, "gpu_count", "9" * 5000, "a whole number from 1 to 10000"),
        ("helios", HELIOS + "1,-5,5,1\n", 2, "arrival_s", "-5", "a number of seconds from 0"),
        ("helios", HELIOS + "\n1,0,5\n", 3, "", "3 fields", "4 fields, as the header has"),
        ("helios", HELIOS + '1,0,"5,1\n2,0,5,1\n', 2, "", '1,0,"5,1', "fields separated by ','"),
        ("helios", HELIOS + '1,0,"5\n6",1\n', 2, "", '1,0,"5', "fields separated by ','"),
        ("helios", HELIOS.replace("arrival_s", "job_id"), 1, "job_id", "job_id", "columns with different names"),
        ("philly", PHILLY + "yesterday,5,1,5,a\n", 2, "timestamp", "yesterday", "a time such as"),
        ("philly", PHILLY + "1960-01-01 00:00:00,5,1,5,a\n", 2, "timestamp", "1960-01-01 00:00:00", "a time such as"),
        ("sacct", SACCT + SACCT_ROW.format("COMPLETE", "", ""), 2, "State", "COMPLETE", "a state of a Slurm job"),
        ("sacct", SACCT + SACCT_ROW.format("COMPLETED", "", "soon"), 2, "Timelimit", "soon", "a length such as"),
        ("sacct", SACCT + SACCT_ROW.format("COMPLETED", "cpu", ""), 2, "AllocTRES", "cpu", "resources such as"),
        ("swf", "1 2 3\n", 1, "", "3 fields", "the 18 fields of a job"),
        ("swf", "; MaxProcs: 8\n" + "1 0 0 x" + " -1" * 14, 2, "4 (run time)", "x", "a number, or -1"),
        ("swf", "1 0 0 5 1 -1 -1 1 -1 -1 9 -1 -1 -1 -1 -1 -1 -1", 1, "11 (status)", "9", "a status from -1 to 5"),
        ("csv", "submit,run,priority\n0,5,urgent\n", 2, "priority", "urgent", "low, medium, high"),
        ("csv", "submit,run,devices\n0,5,1.5\n", 2, "devices", "1.5", "whole devices, or a part of one"),
        ("csv", "submit,run,scaling\n0,5,2=1;1=2\n", 2, "scaling", "2=1;1=2", "sizes in ascending order"),
        ("csv", "submit,run,spec\n0,5,{}\n", 2, "spec", "Object missing", "JSON of a JobSpec"),
        ("csv", "# nodes=2 device=8\nsubmit,run\n0,5\n", 1, "", "device=8", "once each"),
        ("csv", "# nodes=99999999\nsubmit,run\n0,5\n", 1, "", "nodes=99999999", "numbers such as"),
        ("csv", "# one\n\n\n# nodes=two\nsubmit,run\n0,5\n", 4, "", "nodes=two", "numbers such as"),
        (
            "csv",
            '# note: "n"\n' * 1001 + "submit,run\n0,5\n",
            1001,
            "",
            "more",
            "at most 100000 nodes, 1000000 outages",
        ),
        ("csv", "# node: {}\nsubmit,run\n0,5\n", 1, "", "Object missing", "JSON of a NodeSpec"),
    ],
)
def test_a_wrong_cell_is_said_with_line_column_and_what_was_expected(
    tmp_path, kind, content, line, column, found, expected
):
    problem = refused(written(tmp_path, content), kind)
    assert problem.path.endswith("given.csv")
    assert problem.line == line
    assert problem.column.startswith(column)
    assert problem.found.startswith(found)
    assert problem.expected.startswith(expected)


@pytest.mark.parametrize(
    ("kind", "content", "hint"),
    [
        ("helios", "job_id,arrival_s,service_secs,gpu_count\n", "did you mean 'service_secs'?"),
        ("csv", "submit,run,device\n", "did you mean 'devices'?"),
        ("sacct", SACCT + SACCT_ROW.format("COMPLETE", "", ""), "did you mean 'COMPLETED'?"),
        ("csv", "submit,run,ends\n0,5,succeded\n", "did you mean 'succeeded'?"),
        ("heliso", HELIOS, "did you mean 'helios'?"),
        ("csv", "# nodes=2 device=8\nsubmit,run\n", "did you mean 'devices'?"),
    ],
)
def test_the_nearest_right_word_is_named(tmp_path, kind, content, hint):
    assert refused(written(tmp_path, content), kind).hint == hint


@pytest.mark.parametrize(
    ("sample", "kind", "part"),
    [
        ("philly/philly_jobs.csv", "helios", "a column 'job_id'"),
        ("philly/philly_vc_nodes.csv", None, "a header of"),
        ("openb/openb_node_list_all_node.csv", "openb", "a pod list"),
        ("tiresias/n32g4.csv", "tiresias", "a job list"),
        ("swf/log.swf", "csv", "a column of the plain CSV"),
        ("sacct/jobs.txt", "swf", "the 18 fields"),
        ("helios/venus_jobs.csv", "sacct", "a column 'JobID'"),
        ("pollux/profiles/tiny/placements.csv", None, "a header of"),
        ("gavel/physical_cluster_throughputs.json", None, "a JSON list of jobs"),
    ],
)
def test_one_file_taken_for_another_is_refused(sample, kind, part):
    assert part in refused(SAMPLES / sample, kind).expected


def test_files_that_lie_beside_a_trace_say_what_to_name_instead():
    assert "node list of openb" in refused(SAMPLES / "openb" / "openb_node_list_all_node.csv").hint
    assert "virtual clusters" in refused(SAMPLES / "philly" / "philly_vc_nodes.csv").hint
    assert "profile of Pollux" in refused(SAMPLES / "pollux" / "profiles" / "tiny" / "placements.csv").hint


def test_a_file_of_no_known_kind_says_which_kinds_there_are(tmp_path):
    problem = refused(written(tmp_path, "a,b,c\n1,2,3\n"))
    assert f"--kind {'|'.join(KINDS)}" in problem.hint
    assert "|sacct|" in problem.hint


def test_a_header_with_most_of_a_kinds_columns_says_what_is_missing(tmp_path):
    problem = refused(written(tmp_path, "name,time,application,batch_size\n"))
    assert problem.hint == "nearest to kind 'pollux', which needs also: num_replicas"


@pytest.mark.parametrize(
    ("content", "line", "found"),
    [
        (b"job_id,arrival_s,service_sec,gpu_count\n1,0,\0,1\n", 2, "a NUL byte"),
        (HELIOS.encode("utf-16"), 1, "a NUL byte"),
        (HELIOS.encode() + "ä,0,1,1\n".encode("latin-1"), 2, "byte 0xe4"),
        (b"\x7fELF\x02\x01\x01" + bytes(64), 1, "a NUL byte"),
        (b"", 0, "nothing"),
        (b"\n \n\n", 0, "nothing"),
    ],
)
def test_what_is_no_text_is_refused_with_its_line(tmp_path, content, line, found):
    problem = refused(written(tmp_path, content))
    assert (problem.line, problem.found) == (line, found)


def test_a_gzip_file_that_was_cut_off_or_damaged_is_refused(tmp_path):
    whole = gzip.compress((HELIOS + "1,0,5,1\n" * 1000).encode())
    assert "complete gzip" in refused(written(tmp_path, whole[:-20])).expected
    assert "complete gzip" in refused(written(tmp_path, whole[:40] + b"\xff\xff" + whole[42:])).expected
    assert "complete gzip" in refused(written(tmp_path, whole[:5])).expected


def test_folders_missing_and_special_files_are_refused(tmp_path):
    assert "philly_jobs.csv" in refused(SAMPLES / "philly").hint
    assert refused(tmp_path / "none.csv").found == "nothing"
    assert refused(Path("/dev/null")).found == "no file"
    assert "a file" in refused(tmp_path / ("x" * 5000)).expected
    assert "a file" in refused(Path("a\0b")).expected


def test_a_file_that_may_not_be_read_is_refused(tmp_path, monkeypatch):
    def denied(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied")

    path = written(tmp_path, HELIOS)
    monkeypatch.setattr(Path, "open", denied)
    assert refused(path).found == "Permission denied"


def test_lines_lengths_and_counts_are_limited(tmp_path, monkeypatch):
    long = HELIOS + "1,0,5,1\n" + "x" * (text.LINE_BYTES_MAX + 1)
    assert refused(written(tmp_path, long)).line == 3
    assert refused(written(tmp_path, long + "\n1,0,5,1\n")).line == 3
    jobs = written(tmp_path, HELIOS + "1,0,5,1\n" * 10)
    monkeypatch.setattr(build, "JOBS_MAX", 9)
    assert refused(jobs).expected == "at most 9 jobs"
    monkeypatch.setattr(text, "LINES_MAX", 5)
    assert refused(jobs).expected == "at most 5 lines"
    monkeypatch.setattr(text, "FILE_BYTES_MAX", 50)
    assert refused(jobs).found == "more than 50 bytes"


def test_a_small_gzip_file_with_an_endless_line_is_not_read_further_than_a_line_may_go(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "FILE_BYTES_MAX", 4 * text.BLOCK_BYTES)
    packed = gzip.compress(b" " * 50_000_000)
    assert "without a line end" in refused(written(tmp_path, packed)).found


def test_a_trace_without_any_job_is_refused_and_says_why(tmp_path):
    problem = refused(written(tmp_path, HELIOS + "1,0,0,1\n"))
    assert problem.found == "1 jobs left out: they ran for no time, by the source"
    assert refused(written(tmp_path, HELIOS)).found == "no rows"


@pytest.mark.parametrize(
    ("folder", "trace", "gone", "expected"),
    [
        ("openb", "openb_pod_list_small.csv", "openb_node_list_all_node.csv", "a node list beside it"),
        ("tiresias", "6_job.csv", "n32g4.csv", "a cluster description beside it"),
        ("gavel", "physical_cluster_traces.csv", "physical_cluster_throughputs.json", "a throughput table"),
        ("pollux", "workloads/workload-9.csv", "profiles", "a folder 'profiles'"),
        ("pollux", "workloads/workload-9.csv", "profiles/tiny", "one of ncf"),
        ("pollux", "workloads/workload-9.csv", "profiles/tiny/placements.csv", "placements.csv and"),
    ],
)
def test_what_a_trace_needs_beside_it_is_named(tmp_path, folder, trace, gone, expected):
    shutil.copytree(SAMPLES / folder, tmp_path / folder)
    missing = tmp_path / folder / gone
    shutil.rmtree(missing) if missing.is_dir() else missing.unlink()
    assert refused(tmp_path / folder / trace).expected.startswith(expected)


def test_philly_without_its_node_list_takes_the_published_cluster(tmp_path):
    shutil.copy(SAMPLES / "philly" / "philly_jobs.csv", tmp_path)
    trace = load(tmp_path / "philly_jobs.csv")
    assert len(trace.nodes) == 352
    assert all(not queue.guaranteed for queue in trace.config.queues)


def test_a_machine_list_or_node_list_with_too_much_is_refused(tmp_path, monkeypatch):
    shutil.copytree(SAMPLES / "openb", tmp_path / "openb")
    monkeypatch.setattr("penstock.traces.loaders.openb.NODES_MAX", 2)
    assert refused(tmp_path / "openb" / "openb_pod_list_small.csv").expected == "at most 2 nodes"
    assert shapes.NODES_MAX == 100_000


def test_an_id_that_comes_again_gets_a_number_and_is_counted(tmp_path):
    trace = load(written(tmp_path, HELIOS + "7,0,5,1\n7,1,5,1\n7,2,5,1\n"))
    assert len({job.name for job in trace.jobs}) == 3
    assert trace.jobs[0].name == "7"
    assert any(text.startswith("2 jobs have an id") for text in trace.notes)


def test_words_that_are_no_names_stay_apart(tmp_path):
    rows = "".join(f"2017-10-02 00:00:00,5,1,5,{word}\n" for word in ("a b", "a-b", "a/b", "root", "x" * 80, "default"))
    trace = load(written(tmp_path, PHILLY + rows, "philly_jobs.csv"))
    queues = [job.spec.queue for job in trace.jobs]
    assert queues == ["a-b", "a-b-2", "a-b-3", "root-2", "x" * 63, "default"]


def test_a_byte_order_mark_and_windows_line_ends_are_no_problem(tmp_path):
    trace = load(written(tmp_path, "\ufeff" + HELIOS.replace("\n", "\r\n") + "1,0,5,1\r\n"))
    assert trace.jobs[0].name == "1"
