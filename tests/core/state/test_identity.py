"""The cluster's identity: the same in every copy of a log, and another in every other log."""

from penstock.core.lifecycle.orders import start_order
from penstock.core.model.events import LeaderElected, Record
from penstock.core.state.identity import Identity, begun_by, identity_of
from penstock.core.state.state import State
from penstock.testing.harness import cluster


def term(number: int, cluster: str, time_ms: int) -> Record:
    return Record(number, time_ms, LeaderElected(number, "host:7", "1", cluster))


def folded(*records: Record) -> Identity:
    state = State()
    for record in records:
        state.apply(record)
    return state.identity


def test_a_log_that_begins_with_its_identity_gives_the_same_by_its_first_record():
    assert identity_of(term(1, begun_by("host:7", 500), 500)) == begun_by("host:7", 500)
    assert len({begun_by("host:7", 500), begun_by("host:7", 501), begun_by("host:8", 500)}) == 3


def test_folders_are_marked_since_the_first_term_that_knows_how():
    assert folded(term(1, "", 10), term(2, "c", 20), term(3, "c", 30)) == Identity("c", 20)


def test_a_term_of_a_former_version_in_between_begins_anew():
    assert folded(term(1, "c", 10), term(2, "", 20)) == Identity("c", 0)
    assert folded(term(1, "c", 10), term(2, "", 20), term(3, "c", 30)) == Identity("c", 30)


def test_a_snapshot_keeps_it():
    state = State()
    state.apply(term(1, "c", 10))
    assert State.from_image(state.image()).identity == Identity("c", 10)


def ordered(w, job):
    found = w.state.jobs[job]
    return start_order(w.state, found, found.attempt, found.attempt.replicas[0])


def test_jobs_of_one_number_have_different_marks_in_different_logs_and_when_submitted_anew():
    marks = set()
    for name, later_ms in (("c", 0), ("d", 0), ("c", 1)):
        w = cluster(1, 1)
        w.now += later_ms
        w.state.identity = Identity(name, 1)
        job = w.submit()
        w.run(job)
        marks.add(ordered(w, job).mark)
    assert len(marks) == 3


def test_only_a_later_attempt_of_a_job_of_a_former_version_may_find_its_folder_unmarked():
    w = cluster(1, 1)
    old = w.submit(retries_max=1)
    w.now += 1
    w.state.identity = Identity("c", w.now)
    w.run(old)
    assert not ordered(w, old).unmarked
    w.exit_replica(old, 0, 1)
    w.now += 400_000
    w.run(old)
    assert ordered(w, old).unmarked
    w.exit_replica(old, 0, 0)
    new = w.submit(retries_max=1)
    w.run(new)
    w.exit_replica(new, 0, 1)
    w.now += 400_000
    w.run(new)
    assert not ordered(w, new).unmarked


def test_without_an_identity_nothing_is_marked():
    w = cluster(1, 1)
    w.state.identity = Identity()
    job = w.submit()
    w.run(job)
    assert (ordered(w, job).mark, ordered(w, job).unmarked) == ("", False)
