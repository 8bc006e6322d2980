"""Bodies: a large list of jobs is never read on the event loop."""

import asyncio
import json
import threading

import pytest

from penstock.server import intake
from penstock.server.answers import ApiError


@pytest.mark.parametrize(("jobs", "aside"), [(1, False), (5_000, True)])
def test_many_jobs_are_read_beside_the_event_loop(jobs, aside, monkeypatch):
    seen, parse = [], intake.parse_request
    monkeypatch.setattr(intake, "parse_request", lambda raw: (seen.append(threading.current_thread()), parse(raw))[1])
    found = asyncio.run(intake.jobs_of(json.dumps([{"command": "true"}] * jobs).encode()))
    assert len(found) == jobs
    assert [thread is not threading.main_thread() for thread in seen] == [aside]


@pytest.mark.parametrize("jobs", [1, 5_000])
def test_what_is_wrong_with_jobs_is_said_wherever_they_are_read(jobs):
    with pytest.raises(ApiError) as refused:
        asyncio.run(intake.jobs_of(json.dumps([{"comand": "true"}] * jobs).encode()))
    assert refused.value.details.status == 422
