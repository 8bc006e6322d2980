"""Damaged files: whatever is done to them, a loader returns a sound trace or raises TraceError, and nothing else."""

import gzip
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from penstock.traces import KINDS, Trace, TraceError, load
from tests.properties import examples

SAMPLES = Path(__file__).parent / "samples"
FILES: dict[str, tuple[str, str]] = {
    "helios": ("helios/venus_jobs.csv", "helios"),
    "helios original": ("helios/earth/cluster_log.csv", "helios"),
    "philly": ("philly/philly_jobs.csv", "philly"),
    "philly nodes": ("philly/philly_jobs.csv", "philly"),
    "philly log": ("philly_log/cluster_job_log", "philly"),
    "philly machines": ("philly_log/cluster_job_log", "philly"),
    "openb": ("openb/openb_pod_list_small.csv", "openb"),
    "openb nodes": ("openb/openb_pod_list_small.csv", "openb"),
    "acme": ("acme/kalos_converted.csv", "acme"),
    "acme original": ("acme/trace_seren.csv", "acme"),
    "pollux": ("pollux/workloads/workload-9.csv", "pollux"),
    "pollux placements": ("pollux/workloads/workload-9.csv", "pollux"),
    "pollux validation": ("pollux/workloads/workload-9.csv", "pollux"),
    "gavel": ("gavel/physical_cluster_traces.csv", "gavel"),
    "gavel table": ("gavel/physical_cluster_traces.csv", "gavel"),
    "tiresias": ("tiresias/6_job.csv", "tiresias"),
    "tiresias cluster": ("tiresias/6_job.csv", "tiresias"),
    "sacct": ("sacct/jobs.txt", "sacct"),
    "swf": ("swf/log.swf", "swf"),
    "csv": ("csv/own.csv", "csv"),
}
"""What is loaded, and its kind; which file is damaged is the loaded one, or as below."""
DAMAGED = {
    "philly nodes": "philly/philly_vc_nodes.csv",
    "philly machines": "philly_log/cluster_machine_list",
    "openb nodes": "openb/openb_node_list_all_node.csv",
    "pollux placements": "pollux/profiles/tiny/placements.csv",
    "pollux validation": "pollux/profiles/tiny/validation-8.csv",
    "gavel table": "gavel/physical_cluster_throughputs.json",
    "tiresias cluster": "tiresias/n32g4.csv",
}
NASTY = (
    b"", b"0", b"-1", b"1e309", b"nan", b"99999999999999999999", b"0.0000001", b"\xff", b"\0", b'"', b"\r", b"\n", b",",
    b"|", b"9" * 400, b"2017-10-02 00:00:00", b"9999-12-31 23:59:59", b"0001-01-01T00:00:00+23:59", b"Unknown",
    "٣".encode(), b" ", b"1_0", b"0x10", b"[", b"{}", b"1-02:03:04", b"\xef\xbb\xbf", b"1:2", b"=", b"a" * 70_000,
)  # fmt: skip


@st.composite
def damaged(draw, content: bytes) -> bytes:
    """Change `content` in up to four ways."""
    for _ in range(draw(st.integers(1, 4))):
        how = draw(st.sampled_from(["flip", "cut", "swap", "drop", "nasty", "cell", "double", "pack"]))
        at = draw(st.integers(0, max(0, len(content) - 1)))
        if how == "flip" and content:
            content = content[:at] + bytes([content[at] ^ draw(st.integers(1, 255))]) + content[at + 1 :]
        elif how == "cut":
            content = content[:at]
        elif how == "nasty":
            content = content[:at] + draw(st.sampled_from(NASTY)) + content[at + draw(st.integers(0, 3)) :]
        elif how == "pack":
            content = gzip.compress(content, mtime=0)
        else:
            content = b"\n".join(draw(changed_lines(content.split(b"\n"), how)))
    return content


@st.composite
def changed_lines(draw, lines: list[bytes], how: str) -> list[bytes]:
    one, two = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    if how == "swap":
        lines[one], lines[two] = lines[two], lines[one]
    elif how == "double":
        lines.insert(one, lines[two])
    else:
        separator = draw(st.sampled_from([b",", b"|", b" "]))
        if how == "drop":
            lines = [separator.join(drop(line.split(separator), two)) for line in lines]
        else:
            cells = lines[one].split(separator)
            cells[two % len(cells)] = draw(st.sampled_from(NASTY))
            lines[one] = separator.join(cells)
    return lines


def drop(cells: list[bytes], at: int) -> list[bytes]:
    return cells[: at % len(cells)] + cells[at % len(cells) + 1 :]


def is_sound(trace: Trace) -> bool:
    """Everything that a simulator relies on, whatever the file said."""
    queues = {queue.name for queue in trace.config.queues}
    tenants = {tenant.name for tenant in trace.config.tenants}
    return (
        bool(trace.jobs and trace.nodes)
        and all(a.submit_ms <= b.submit_ms for a, b in zip(trace.jobs, trace.jobs[1:], strict=False))
        and all(job.work.run_ms > 0 and job.submit_ms >= 0 for job in trace.jobs)
        and all(job.spec.queue in queues and job.spec.tenant in tenants for job in trace.jobs)
        and all(1 <= job.spec.ask.replica_total <= 10_000 and job.spec.ask.device_total >= 0 for job in trace.jobs)
        and all(job.spec.priority >= 0 and job.spec.time_limit_ms >= 0 for job in trace.jobs)
        and len({job.name for job in trace.jobs}) == len(trace.jobs)
        and len({node.name for node in trace.nodes}) == len(trace.nodes)
        and all(node.capacity.cpu_milli >= 0 and node.capacity.memory_bytes >= 0 for node in trace.nodes)
    )


@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
@examples(40, suppress_health_check=list(HealthCheck))
def test_a_damaged_file_gives_a_sound_trace_or_a_trace_error(name, data, tmp_path_factory):
    loaded, kind = FILES[name]
    victim = DAMAGED.get(name, loaded)
    content = data.draw(damaged((SAMPLES / victim).read_bytes()))
    kind = data.draw(st.sampled_from([kind, kind, None]))
    folder = tmp_path_factory.mktemp("fuzz")
    top = Path(loaded).parts[0]
    shutil.copytree(SAMPLES / top, folder / top)
    (folder / victim).write_bytes(content)
    try:
        trace = load(folder / loaded, kind)
    except TraceError as problem:
        said = str(problem)
    else:
        said = str(folder) if is_sound(trace) else f"not sound: {trace}"
    shutil.rmtree(folder)
    assert str(folder) in said


@given(content=st.binary(max_size=300), kind=st.sampled_from([*KINDS, None]))
@examples(200, suppress_health_check=list(HealthCheck))
def test_any_bytes_give_a_trace_error_or_a_sound_trace(content, kind, tmp_path):
    file = tmp_path / "given"
    file.write_bytes(content)
    try:
        trace = load(file, kind)
    except TraceError:
        return
    assert is_sound(trace)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted({loaded for loaded, _ in FILES.values()} | set(DAMAGED.values())))
def test_every_file_as_every_kind_gives_a_sound_trace_or_a_trace_error(name, kind):
    try:
        trace = load(SAMPLES / name, kind)
    except TraceError:
        return
    assert is_sound(trace)
