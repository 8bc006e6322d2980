"""Lists of jobs: filtered, sorted, folded and paged by the server."""

import pytest

from penstock.client import ApiProblem

WAITS = {"devices": 4, "replicas": 2}


@pytest.fixture
def some(jobs):
    """A running job, an array of three that waits, a waiting job of high priority, and one that is over."""
    over = jobs.submit("true", name="some-over")
    jobs.ended(over)
    run = jobs.submit("sleep 600", devices=1, name="some-run", preemptible=False)
    jobs.state(run, "running")
    array = jobs.submit(name="some-array", array=3, labels={"team": "a"}, **WAITS)
    jobs._made += [array + 1, array + 2]
    high = jobs.submit(name="some-high", priority="high", **WAITS)
    return over, run, array, high


def ids(found):
    return [job.id for job in found.jobs]


def test_running_jobs_come_before_waiting_ones_and_these_from_the_newest(jobs, some):
    over, run, array, high = some
    found = jobs.client.jobs(name="some-*", sort="newest", finished="true")
    assert [job for job in ids(found) if job >= over] == [run, high, array + 2, array + 1, array, over]
    assert found.totals == {"running": 1, "waiting": 4}


@pytest.mark.parametrize(
    ("sort", "order"), [("priority", [3, 0, 1, 2]), ("id", [0, 1, 2, 3]), ("submitted", [0, 1, 2, 3])]
)
def test_other_orders_are_by_one_value(jobs, some, sort, order):
    _, _run, array, high = some
    made = [array, array + 1, array + 2, high]
    assert ids(jobs.client.jobs(name="some-*", state="waiting", sort=sort)) == [made[i] for i in order]


def test_each_order_can_be_turned_around(jobs, some):
    found = [ids(jobs.client.jobs(name="some-*", sort=sort)) for sort in ("name", "devices", "started")]
    turned = [ids(jobs.client.jobs(name="some-*", sort=f"-{sort}")) for sort in ("name", "devices", "started")]
    _, run, array, high = some
    members = [array, array + 1, array + 2]
    assert found == [[*members, high, run], [run, *members, high], [run, *members, high]]
    assert turned == [[run, high, *reversed(members)], [high, *reversed(members), run], [run, high, *reversed(members)]]


def test_rows_have_only_the_fields_that_were_asked_for(jobs, some):
    over, run, _, high = some
    query = {"search": "some-", "finished": "true", "sort": "-priority", "limit": 1000}
    found = jobs.client.listed("jobs", fields="id,state", **query)
    rows = {row["id"]: row for row in found["jobs"]}
    assert rows[over] == {"id": over, "state": "succeeded"}
    assert rows[run] == {"id": run, "state": "running"}
    assert [job for job in rows if job in (over, high)] == [high, over]


def test_live_jobs_are_counted_by_what_was_asked_for(jobs, some):
    found = jobs.client.jobs(name="some-*", totals_by="state", limit=1)
    assert [(one.name, one.count, one.devices) for one in found.groups] == [("waiting", 4, 32), ("running", 1, 1)]
    (group,) = jobs.client.jobs(name="some-*", totals_by="user", state="waiting").groups
    assert group.count == 4


def test_an_array_is_folded_into_one_row_with_its_counts(jobs, some):
    _, run, array, high = some
    found = jobs.client.jobs(name="some-*", fold_arrays="true")
    assert ids(found) == [run, high, array + 2]
    assert found.jobs[2].array_counts == {"waiting": 3}
    assert ids(jobs.client.jobs(array=array, sort="id")) == [array, array + 1, array + 2]


def test_pages_go_on_where_the_last_one_ended_whatever_came_or_went(jobs, some):
    over, run, array, high = some
    query = {"name": "some-*", "sort": "newest", "finished": "true", "limit": 2}
    first = jobs.client.jobs(**query)
    jobs.client.cancel(high)
    jobs.submit(name="some-new", **WAITS)
    second = jobs.client.jobs(cursor=first.next_cursor, **query)
    assert (ids(first), ids(second)) == ([run, high], [array + 2, array + 1])
    third = jobs.client.jobs(cursor=second.next_cursor, **query)
    fourth = jobs.client.jobs(cursor=third.next_cursor, **query)
    assert (ids(third) + ids(fourth))[:3] == [array, high, over]


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"state": ["running", "waiting"], "name": "some-*"}, 5),
        ({"state": "succeeded", "name": "some-*", "sort": "newest"}, 1),
        ({"label": "team=a"}, 3),
        ({"name": "some-*", "queue": "default"}, 5),
        ({"name": "some-*", "user": "nobody"}, 0),
        ({"search": "OME-ARR"}, 3),
        ({"search": "EAM=A"}, 3),
        ({"search": "some-over", "finished": "true"}, 1),
        ({"name": "some-*", "reason": "no such reason"}, 0),
    ],
)
def test_a_list_is_filtered(jobs, some, query, count):
    own = set(range(some[0], some[3] + 1))
    assert len(own.intersection(ids(jobs.client.jobs(limit=1000, **query)))) == count


@pytest.mark.parametrize(
    ("query", "code", "hint"),
    [
        ({"state": "runing"}, "unknown_state", "did you mean 'running'?"),
        ({"tenant": "defualt"}, "unknown_tenant", "did you mean 'default'?"),
        ({"queue": "defualt"}, "unknown_queue", "did you mean 'default'?"),
        ({"label": "x"}, "bad_value", ""),
        ({"sort": "nmae"}, "unknown_sort", "did you mean 'name'?"),
        ({"fields": "id,stat"}, "unknown_field", "did you mean 'state'?"),
        ({"totals_by": "usr"}, "unknown_totals_by", "did you mean 'user'?"),
        ({"cursor": "x"}, "bad_value", ""),
        ({"cursor": "WzEsMl0="}, "bad_value", ""),
    ],
)
def test_a_filter_that_cannot_match_is_refused_with_the_nearest_word(jobs, query, code, hint):
    with pytest.raises(ApiProblem) as refused:
        jobs.client.jobs(**query)
    assert (refused.value.details.status, refused.value.problems[0].code) == (422, code)
    assert refused.value.problems[0].hint == hint
