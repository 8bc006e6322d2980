"""Pages of live jobs, by tenant and state: what is on them, and what they cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.model.ids import ClassId, JobId, QueueName, TenantName, UserName
from penstock.core.model.jobs import GangAsk, Job, JobSpec, JobState
from penstock.core.model.resources import ReplicaAsk, Resources
from penstock.core.state import live_jobs
from penstock.core.state.live_jobs import LIVE_STATES, LiveJobs

TENANTS = tuple(map(TenantName, ("blue", "green", "red")))


def job(
    number: int, tenant: str = "red", state: JobState = "waiting", user: str = "ann", unmet: tuple[int, ...] = ()
) -> Job:
    spec = JobSpec(("true",), GangAsk(1, ReplicaAsk(Resources())), tenant=TenantName(tenant), queue=QueueName("q"))
    return Job(JobId(number), spec, UserName(user), 0, number, ClassId(0), state=state, unmet=unmet)


def filled(*jobs: Job) -> LiveJobs:
    found = LiveJobs()
    for each in jobs:
        found[each.id] = each
    return found


changes = st.lists(
    st.tuples(st.integers(1, 12), st.sampled_from(TENANTS), st.sampled_from(LIVE_STATES), st.booleans()), max_size=60
)


@given(changes, st.integers(0, 12), st.integers(1, 12), st.sets(st.sampled_from(TENANTS)), st.sampled_from(LIVE_STATES))
def test_pages_and_counts_are_those_of_a_recount(made, after, limit, tenants, state):
    jobs = LiveJobs()
    for number, tenant, its_state, present in made:
        if present:
            old = jobs.get(JobId(number))
            jobs[JobId(number)] = replace(old, state=its_state) if old else job(number, tenant, its_state)
        elif number in jobs:
            del jobs[JobId(number)]
    mine = [j for j in sorted(jobs.values(), key=lambda j: j.id) if j.spec.tenant in tenants and j.state == state]
    assert jobs.page(after, limit, tenants, [state]) == [j for j in mine if j.id > after][:limit]
    assert jobs.page(0, 100) == sorted(jobs.values(), key=lambda j: j.id)
    assert jobs.count(tenants, state) == len(mine)
    assert jobs.indexes() == filled(*jobs.values()).indexes()


@pytest.mark.parametrize("times", [0, 100])
def test_a_page_of_several_lists_is_the_same_sorted_and_merged(monkeypatch, times):
    monkeypatch.setattr(live_jobs, "SORTED_TIMES", times)
    jobs = filled(*(job(number, TENANTS[number % 2], LIVE_STATES[number % 3]) for number in range(1, 30)))
    jobs._by_state["running"].numbers.append(JobId(30))  # it is about to be listed elsewhere, or has just left
    jobs._by_state["waiting"].numbers += [JobId(30), JobId(31)]
    jobs.update({JobId(30): job(30)})
    assert [each.id for each in jobs.page(20, 7)] == list(range(21, 28))
    assert [each.id for each in jobs.page(20, 70)] == list(range(21, 31))


def test_queues_count_what_waits_what_is_blocked_and_what_is_active():
    jobs = filled(job(1), job(2, unmet=(1,)), job(3, "blue", "running"), job(4, "blue", user="bob"))
    assert [jobs.in_queue(QueueName("q"), phase) for phase in ("waiting", "blocked", "active")] == [2, 1, 1]
    q = QueueName("q")
    assert (jobs.queued(q), jobs.queued(q, tenant="red"), jobs.queued(q, user="bob")) == (3, 2, 1)


class Overtaken(list[JobId]):
    """Numbers of which the first goes after a position was looked up, and before it is used: once."""

    def __init__(self, numbers: LiveJobs) -> None:
        super().__init__(sorted(numbers))
        self.jobs = numbers
        self.left = 1

    def __getitem__(self, at):  # type: ignore[no-untyped-def]
        if isinstance(at, slice) and self.left:
            self.left = 0
            del self.jobs[self[0]]
        return super().__getitem__(at)


def test_a_page_that_is_overtaken_by_the_end_of_a_job_leaves_out_none_that_stay():
    jobs = filled(*(job(number) for number in range(1, 10)))
    jobs._by_state["waiting"].numbers = Overtaken(jobs)
    assert [each.id for each in jobs.page(4, 3)] == [5, 6, 7]
    assert 1 not in jobs


def test_a_job_whose_request_changes_names_the_secrets_of_the_new_one():
    old = job(1)
    specs = [replace(old.spec, secrets=tuple((name, name) for name in names)) for names in ("AB", "BC")]
    jobs = filled(replace(old, spec=specs[0]))
    jobs[JobId(1)] = replace(old, spec=specs[1])
    assert [len(jobs.naming_secret(name, user=old.user)) for name in "ABC"] == [0, 1, 1]
    assert jobs.indexes() == filled(replace(old, spec=specs[1])).indexes()
