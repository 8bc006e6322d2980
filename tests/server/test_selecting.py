"""What the ids of a selection name."""

import pytest

from penstock.api.jobs import JobSelection
from penstock.server.http.responses import ApiError
from penstock.server.selecting import Named, matcher, named_by
from penstock.testing.harness import cluster


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("3", Named({3}, [], {})),
        ("3-3", Named({3}, [], {})),
        ("5-9", Named(set(), [range(5, 10)], {})),
        ("12[]", Named(set(), [], {12: None})),
        ("12[0]", Named(set(), [], {12: {0}})),
        ("12[0-3,7]", Named(set(), [], {12: {0, 1, 2, 3, 7}})),
    ],
)
def test_an_id_names_a_number_a_range_or_members_of_an_array(text, named):
    assert named_by([text]) == named


def test_what_is_named_several_times_is_named_once():
    assert named_by(["3", "3", "12[0-3]", "12[2-4]", "13[1]", "13[]", "13[2]"]) == Named(
        {3}, [], {12: {0, 1, 2, 3, 4}, 13: None}
    )


@pytest.mark.parametrize("text", ["", "a", "-1", "1-", "3-2", "12[", "12[a]", "12[3-1]", "1.5", "1 2", "٣", "1" * 17])
def test_what_names_no_job_is_refused(text):
    with pytest.raises(ApiError) as refused:
        named_by([text])
    assert refused.value.details.problems[0].code == "bad_id"


def test_all_conditions_must_hold():
    w = cluster(1, 4)
    w.submit(1, name="one", labels=(("team", "a"), ("kind", "x")))
    job = w.state.jobs[1]
    holds = JobSelection(name="o?e", queue="default", tenant="default", labels={"team": "a"}, states=["waiting"])
    assert matcher(holds)(job)
    for other in (
        JobSelection(name="on"),
        JobSelection(queue="x"),
        JobSelection(tenant="x"),
        JobSelection(user="x"),
        JobSelection(labels={"team": "b"}),
        JobSelection(states=["running"]),
    ):
        assert not matcher(other)(job)
