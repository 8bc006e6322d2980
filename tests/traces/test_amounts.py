"""Times, lengths, sizes and resources as the sources write them."""

import pytest

from penstock.core.model.jobs import GangAsk, GroupAsk
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.formats.numbers import moment_ms, seconds_to_ms, whole_number
from penstock.formats.slurm_tres import TresAmounts, tres
from penstock.traces import TraceError, load
from penstock.traces.loaders.slurm_amounts import gres

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "value_ms"),
    [
        ("2017-10-09 07:01:55", 1_507_532_515_000),
        ("2017-10-09T07:01:55", 1_507_532_515_000),
        ("2017-10-09 09:01:55+02:00", 1_507_532_515_000),
        ("2017-10-09 07:01:55.250", 1_507_532_515_250),
        ("1507532515", 1_507_532_515_000),
        ("1507532515.25", 1_507_532_515_250),
        ("0", 0),
    ],
)
def test_times_are_unix_milliseconds(text, value_ms):
    assert moment_ms(text) == value_ms


@pytest.mark.parametrize("text", ["", "-1", "1969-12-31 23:59:59", "2017-13-01", "now", "1e400", "1_0", "٣", "9" * 30])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011 (the text of the error is the value itself)
        moment_ms(text)


def test_seconds_are_exact_to_the_millisecond():
    assert seconds_to_ms("66.5") == 66_500
    assert seconds_to_ms("4628226.0") == 4_628_226_000
    assert seconds_to_ms("-2") == -2_000
    assert whole_number("8.0") == 8


def test_trackable_resources_and_generic_ones():
    assert tres("billing=8,cpu=8,gres/gpu=2,gres/gpu:a100=2,mem=64G,node=1") == TresAmounts(8, 64 * GIB, 1, 2, "a100")
    assert tres("cpu=1.5K,gres/gpu:h100=4") == TresAmounts(cpus=1500, gpus=4, model="h100")
    assert tres("") == TresAmounts()
    assert gres("gpu:a100:2", 2) == (2, "a100")
    assert gres("gpu:2(S:0-1)", 2) == (2, "")
    assert gres("PER_JOB:gpu:4", 2) == (4, "")
    assert gres("PER_NODE:gpu:v100:4,craynetwork:1", 2) == (8, "v100")
    assert gres("PER_JOB:gres:gpu:4 PER_NODE:gres:gpu:t4:1", 3) == (4, "t4")
    assert gres("PER_TASK:gpu:1", 2) == (2, "")
    assert gres("gres:gpu:1", 2) == (1, "")
    assert gres("gpu:a100:1,gpu:h100:2", 1) == (3, "a100")
    assert gres("0", 1) == gres("NONE", 1) == (0, "")


def sacct_ask(tmp_path, **cells: str) -> GangAsk:
    path = tmp_path / "jobs.txt"
    header = "JobID|Submit|Start|End|" + "|".join(cells)
    row = "1|2024-01-01T00:00:00|2024-01-01T00:01:00|2024-01-01T00:02:00|" + "|".join(cells.values())
    path.write_text(f"{header}\n{row}\n")
    return load(path).jobs[0].spec.ask


def test_memory_of_a_node_of_a_cpu_and_of_a_job(tmp_path):
    each = {"NNodes": "2", "AllocCPUS": "8"}
    assert sacct_ask(tmp_path, ReqMem="4Gn", **each).each.host == Resources(4_000, 4 * GIB)
    assert sacct_ask(tmp_path, ReqMem="4Gc", **each).each.host == Resources(4_000, 16 * GIB)
    assert sacct_ask(tmp_path, ReqMem="4G", **each).each.host == Resources(4_000, 2 * GIB)


@pytest.mark.parametrize(
    ("column", "cell", "count"), [("ReqGRES", "PER_NODE:gpu:v100:4", 4), ("ReqGRES", "gpu:v100:12", 4),
    ("AllocGRES", "gpu:v100:6", 2), ("ReqGRES", "PER_JOB:gpu:v100:3", 1)],
)  # fmt: skip
def test_generic_resources_are_of_the_job_unless_they_say_of_each_node(tmp_path, column, cell, count):
    ask = sacct_ask(tmp_path, **{column: cell}, NNodes="3", AllocCPUS="12")
    assert ask == GangAsk(3, ReplicaAsk(Resources(4_000), DeviceAsk(count, models=("v100",))))


def test_devices_that_do_not_divide_give_the_first_nodes_one_more(tmp_path):
    ask = sacct_ask(tmp_path, AllocTRES="cpu=3,gres/gpu=5,node=3")
    more = ReplicaAsk(Resources(1_000), DeviceAsk(2))
    assert ask == GangAsk(2, more, others=(GroupAsk(1, ReplicaAsk(Resources(1_000), DeviceAsk(1))),))


def test_a_closing_separator_is_no_column(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text("JobID|Submit|Start|End|\n1|0|60|120|\n")
    assert load(path).jobs[0].work.run_ms == 60_000
    path.write_text("JobID|Submit|Start|End|\n1|0|60|120|x\n")
    with pytest.raises(TraceError, match="5 fields"):
        load(path, "sacct")


def test_large_priorities_are_scaled(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text("JobID|Submit|Start|End|Priority\n1|0|60|120|400000\n2|0|60|120|100000\n")
    trace = load(path)
    assert [job.spec.priority for job in trace.jobs] == [10_000, 2_500]
    assert "priorities are scaled: 400000 in the source is 10000 here" in trace.notes
