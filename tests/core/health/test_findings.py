"""Diagnosis: what the log says of why a job failed, hangs or started again."""

import pytest

from penstock.core.health.findings import EVIDENCE_MAX, diagnosis
from penstock.core.model import events as ev
from penstock.core.model.jobs import ExitInfo
from penstock.testing.builders import node
from penstock.testing.harness import World, cluster


def of(w, job):
    return diagnosis([r for r in w.records if getattr(r.event, "job_id", None) == job])


def failed(code=1, signal=None, **fields):
    """Return the diagnosis of a job of one replica that ended so."""
    w = cluster(1, 4)
    job = w.submit(1)
    w.run(job)
    w.exit_replica(job, 0, code if signal is None else None, signal=signal, **fields)
    return of(w, job)


@pytest.mark.parametrize(
    ("fields", "cause", "said"),
    [
        ({"last_error": "torch.OutOfMemoryError: CUDA out of memory. Tried"}, "device_memory", "smaller batch"),
        ({"note": "the host memory limit was hit", "signal": 9}, "memory", "more `memory`"),
        ({"last_error": "ModuleNotFoundError: No module named 'x'"}, "import", "install it"),
        ({"last_error": "FileNotFoundError: [Errno 2] No such file"}, "not_found", "`workdir`"),
        ({"last_error": "PermissionError: [Errno 13] Permission denied"}, "permission", "account"),
        ({"last_error": "OSError: [Errno 28] No space left on device"}, "disk", "free space"),
        ({"last_error": "RuntimeError: NCCL communicator was aborted"}, "communication", "other ranks"),
        ({"last_error": "uncorrectable ECC error encountered"}, "device", "operator"),
        ({"code": 127}, "not_found", "PATH"),
        ({"signal": 11}, "crash", "FAULTHANDLER"),
        ({"signal": 9}, "killed", "memory limit"),
        ({"code": 3, "last_error": "ValueError: x"}, "program", "look at the last error"),
        ({"code": 3}, "program", "last lines"),
    ],
)
def test_common_errors_are_known_by_their_words_or_status(fields, cause, said):
    found = failed(**fields)
    assert (found.state, found.cause) == ("failed", cause)
    assert said in found.suggestions[0]
    assert found.evidence[0].text.startswith("rank 0 on n0 ended: ")


def test_the_rank_that_failed_first_is_named_and_not_those_that_it_took_along():
    w = cluster(2, 2)
    job = w.submit(2, replicas=2)
    w.run(job)
    w.exit_replica(job, 1, 1, last_error="ImportError: x")
    w.exit_replica(job, 0, 1, stop_sent=True, last_error="NCCL error")
    found = of(w, job)
    assert (found.cause, "rank 1 on n1" in found.summary) == ("import", True)
    assert not any("rank 0" in one.text for one in found.evidence)


def test_a_failure_that_comes_again_and_again_on_one_node_is_said():
    w = World(node("n1", 1))
    job = w.submit(1, retries_max=2)
    for _ in range(3):
        w.now += 3_600_000
        w.run(job)
        w.exit_replica(job, 0, 4)
    found = of(w, job)
    assert found.state == "failed"
    assert found.suggestions[1:] == [
        "3 attempts ended in the same way (exit 4): it is hardly chance",
        "all of them failed on n1: have an operator look at it, or run elsewhere",
    ]


def test_a_lost_node_is_not_the_jobs_fault():
    w = World(node("n1", 1))
    job = w.submit(1)
    w.run(job)
    w.lose("n1")
    found = of(w, job)
    assert (found.cause, found.state) == ("node", "waiting")
    assert found.summary.startswith("it waits to start again; the last attempt: it was lost with a node: node n1")
    assert found.suggestions[0].startswith("nothing is wrong with the job")


def test_a_hang_is_said_until_the_program_goes_on():
    w = cluster(1, 4)
    job = w.submit(1, on_hang="report")
    w.run(job)
    w.emit(ev.HangFound(job, 1, 5, (3,), "rank 3 waits for data", 60_000))
    found = of(w, job)
    assert (found.cause, found.summary) == ("hang", "it hangs: rank 3 waits for data")
    assert found.suggestions == ["look first at rank 3: the others wait for it"]
    w.emit(ev.CheckpointSaved(job, 1, 6))
    assert (of(w, job).cause, of(w, job).summary) == ("", "nothing is known to be wrong")


def test_a_time_limit_a_cancel_and_a_success_are_no_failures_of_the_program():
    w = cluster(1, 4)
    done, cancelled, waits = w.submit(1), w.submit(1), w.submit(4)
    w.run(done, cancelled)
    w.exit_replica(done)
    w.cancel(cancelled)
    w.leave(cancelled)
    assert (of(w, done).cause, of(w, done).summary) == ("", "it succeeded")
    assert (of(w, cancelled).cause, of(w, cancelled).suggestions) == ("cancelled", [])
    assert of(w, waits).suggestions == ["its explanation says why it waits"]


def test_evidence_has_a_bound_and_names_records():
    records = [ev.Record(1, 1, ev.JobSubmitted(7, None, "ann"))]
    records += [ev.Record(2 + i, i, ev.JobCancelRequested(7, "ann")) for i in range(EVIDENCE_MAX + 5)]
    found = diagnosis(records)
    assert (len(found.evidence), found.left_out, found.evidence[-1].seq) == (EVIDENCE_MAX, 5, EVIDENCE_MAX + 6)


def test_every_end_of_a_replica_is_said_somehow():
    for info in (ExitInfo(), ExitInfo(problem="never started"), ExitInfo(signal=64), ExitInfo(255)):
        w = cluster(1, 1)
        job = w.submit(1)
        w.run(job)
        w.exit_replica(job, 0, info.code, signal=info.signal, problem=info.problem)
        assert of(w, job).summary
