"""What `penstock explain` says of the pilot."""

from penstock.core.model.gang import GangAsk
from penstock.core.model.resources import ReplicaAsk, Resources
from penstock.engines.slurm.pilot.lent import LentJob
from penstock.engines.slurm.pilot.needs import Needed
from penstock.engines.slurm.pilot.saying import Said
from penstock.engines.slurm.pilot.sizing import Decision, Memory

ASK = GangAsk(2, ReplicaAsk(Resources()))
NEEDS = Needed(2, {ASK: 2}, {})


def decision(**more) -> Decision:
    return Decision((), (), (), Memory())._replace(**more)


def job(**more) -> LentJob:
    values = {
        "number": "5", "state": "PENDING", "stage": "asked", "reason": "Resources", "submit_s": 60, "start_s": 0,
        "end_s": 0, "nodes": 2, "hosts": (), "tag": "",
    }  # fmt: skip
    return LentJob(**{**values, **more})


def said(needed: Needed = NEEDS, *, asked=(), **more) -> str:
    return Said(needed, decision(**more), asked, 4, 4).of(ASK, 100.0)


def test_a_job_that_waits_for_nodes_hears_since_when_and_until_when():
    assert said(asked=[job()]) == "pilot: waits for 2 Slurm nodes, asked for 40s ago; Slurm says Resources"
    text = "pilot: waits for 2 Slurm nodes, asked for 40s ago; Slurm expects a start at 10:40:00 UTC"
    assert said(asked=[job(start_s=38_400)]) == text
    assert said(asks=(2,)) == "pilot: waits for 2 Slurm nodes, which are being asked for"
    assert said() == "pilot: waits for 2 Slurm nodes, which are joining"
    assert Said().of(ASK, 0.0) == ""


def test_bounds_and_failures_are_named():
    assert said(held_back=2) == "pilot: waits for 2 Slurm nodes; it has 4 nodes, and may have 4 at the most"
    failed = Said(NEEDS, decision(again_s=38_400.0), (), 0, 4, "sbatch: invalid partition").of(ASK, 0.0)
    text = "pilot: waits for 2 Slurm nodes; the last ask failed: sbatch: invalid partition; asked again at 10:40:00 UTC"
    assert failed == text
    never = Said(Needed(0, {}, {ASK: "devices_too_few"}), decision(), (), 0, 4).of(ASK, 0.0)
    assert never == "pilot: the 4 nodes that it may have at the most cannot hold it: 4 nodes have too few devices"
