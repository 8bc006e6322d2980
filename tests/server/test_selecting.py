"""What the ids of a selection name."""

import pytest

from penstock.api.jobs import JobSelection
from penstock.server.http.responses import ApiError
from penstock.server.selecting import Span, matcher, spans_of
from penstock.testing.harness import cluster


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("3", [Span(3, 3)]),
        ("5-9", [Span(5, 9)]),
        ("12[]", [Span(0, None, 12)]),
        ("12[0]", [Span(0, 0, 12)]),
        ("12[0-3,7]", [Span(0, 3, 12), Span(7, 7, 12)]),
    ],
)
def test_an_id_names_a_number_a_range_or_members_of_an_array(text, spans):
    assert spans_of([text]) == spans


@pytest.mark.parametrize("text", ["", "a", "-1", "1-", "3-2", "12[", "12[a]", "12[3-1]", "1.5", "1 2", "٣", "1" * 17])
def test_what_names_no_job_is_refused(text):
    with pytest.raises(ApiError) as refused:
        spans_of([text])
    assert refused.value.details.problems[0].code == "bad_id"


def test_only_one_number_alone_is_single():
    assert [span.single for span in spans_of(["3", "3-3", "3-4", "3[0]", "3[]"])] == [True, True, False, False, False]


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
