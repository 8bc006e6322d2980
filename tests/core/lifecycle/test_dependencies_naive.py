"""Dependencies on runs of jobs against a model that keeps each dependency of each job by itself."""

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.config.job_graph import sorted_by_dependency
from penstock.core.lifecycle.ending import dependency_met
from penstock.core.lifecycle.requests import NewJob, Submit, submit
from penstock.core.model.events import Record
from penstock.core.model.jobs import Dependency
from penstock.core.state import invariants
from penstock.core.state.state import Image, State, fold
from penstock.testing.builders import job_spec
from penstock.testing.harness import cluster
from tests.core.former import former
from tests.core.state.test_fold import facts, reloaded
from tests.properties import examples

KINDS = ("after_ok", "after_any", "after_failed")


class Naive:
    """Each job with all pairs of a job and a kind that it depends on."""

    def __init__(self):
        self.after = {}
        self.ended = {}
        self.reasons = {}

    def submit(self, first, entries):
        named, at = {}, first
        for new in entries:
            named.setdefault(new.spec.name, []).extend(range(at, at + new.count))
            at += new.count
        for new in entries:
            pairs = [(job_id, one.kind) for one in new.spec.after for job_id in one.jobs]
            pairs += [(job_id, kind) for name, kind in new.after_names for job_id in named[name]]
            for _ in range(new.count):
                self.after[first] = pairs
                first += 1
        for job_id in range(at - sum(e.count for e in entries), at):
            self._look(job_id)

    def _look(self, job_id):
        """Cancel a job that cannot start any more, and all that follow from it."""
        for other, kind in self.after[job_id]:
            if job_id not in self.ended and other in self.ended and not dependency_met(kind, self.ended[other]):
                self.end(job_id, "cancelled")

    def end(self, job_id, state):
        self.ended[job_id] = state
        for other in self.after:
            self._look(other)

    def unmet(self, job_id):
        return {other for other, _ in self.after[job_id] if other not in self.ended}

    @property
    def live(self):
        return self.after.keys() - self.ended.keys()


def request(rnd, known):
    """Return entries in order: arrays, plain jobs, names that several have, and numbers of earlier jobs."""
    entries = []
    for index in range(rnd.randint(1, 5)):
        first = rnd.randint(1, known) if known else 0
        numbers = range(first, min(known, first + rnd.randint(0, 4)) + 1) if first and rnd.random() < 0.4 else ()
        spec = job_spec(0, name=rnd.choice("xyz"), after=tuple(Dependency(i, rnd.choice(KINDS)) for i in numbers))
        names = tuple((rnd.choice("xyz"), rnd.choice(KINDS)) for _ in range(rnd.choice((0, 0, 1, 2))))
        own = {entry.spec.name for entry in entries}
        names = tuple(pair for pair in names if pair[0] in own)
        entries.append(NewJob(spec, rnd.choice((0, 0, 1, 2, 4)), names, f"jobs[{index}]"))
    problems = []
    return sorted_by_dependency(entries, problems)


def check(w, naive):
    assert set(w.state.jobs) == naive.live
    assert w.ended == naive.ended
    for job_id, job in w.state.jobs.items():
        found = {i for one in job.awaited for i in one.jobs if i in w.state.jobs}
        assert found == naive.unmet(job_id), job_id
        assert bool(job.unmet) == bool(found)


def one_by_one(state):
    """Return the facts of a state with dependencies by single jobs: runs of former versions may be longer."""
    found = facts(state)
    kinds = found.pop("dependants")[0]
    runs = [(range(first, first + n), kind, jobs) for ((first, n), kind), jobs in kinds.items()]
    waiting = {(i, kind, job) for run, kind, jobs in runs for i in run for job in jobs}
    jobs = {}
    for job_id, (job, key) in found.pop("jobs").items():
        after = {(i, one.kind) for one in job.spec.after for i in one.jobs}
        spec = msgspec.structs.replace(job.spec, after=())
        jobs[job_id] = (msgspec.structs.replace(job, spec=spec, unmet=()), after, bool(job.unmet), key)
    return found | {"waiting": {one for one in waiting if one[0] in state.jobs}, "jobs": jobs}


@examples(60)
@given(st.integers(0, 2**32))
def test_runs_of_jobs_say_what_single_dependencies_say(seed):
    rnd, w, naive = random.Random(seed), cluster(1, 0, cpus=10_000), Naive()
    for _ in range(rnd.randint(3, 12)):
        entries = request(rnd, w.state.next_job - 1)
        if rnd.random() < 0.5 and entries:
            naive.submit(w.state.next_job, entries)
            w.commit(lambda tx, e=entries: submit(tx, Submit(e, "ann"), dict(w.ended)))
        w.cycle()
        for job_id in rnd.sample(sorted(w.state.jobs), min(len(w.state.jobs), rnd.randint(0, 4))):
            if job_id not in w.state.jobs:
                continue
            if w.job(job_id).attempt is None:
                w.cancel(job_id)
                naive.end(job_id, "cancelled")
            else:
                code = rnd.choice((0, 0, 1))
                w.exit_replica(job_id, 0, code)
                naive.end(job_id, "failed" if code else "succeeded")
        check(w, naive)
    assert facts(reloaded(w.state)) == facts(w.state)
    for other in (fold(former(w.records, list[Record])), State.from_image(former(w.state.image(), Image))):
        assert one_by_one(other) == one_by_one(w.state)
        assert invariants.violations(other) == []


def test_what_the_former_version_wrote_has_one_value_for_each_job():
    from tests.core.state.test_dependencies import two_arrays

    w = two_arrays(20)
    sizes = [len(msgspec.msgpack.encode(found)) for found in (w.records, former(w.records, object))]
    assert sizes[1] > 20 * 20 * 20 > sizes[0]
    (last,) = former(w.records, object)[-1:]
    assert last["event"]["spec"]["after"] == [{"job_id": i, "kind": "after_ok"} for i in range(1, 21)]
    assert former(w.state.image(), object)["jobs"][-1]["unmet"] == list(range(1, 21))
