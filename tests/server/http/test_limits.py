"""Rates, streams and sizes: each limit has a name, a defined answer, and leaves honest callers alone."""

import asyncio
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.lifecycle.requests import NewJob
from penstock.core.lifecycle.size import RECORD_BYTES
from penstock.core.model.cluster import Tenant
from penstock.core.order.turns import Submitter
from penstock.core.state.live_jobs import LiveJobs
from penstock.server.http import limits as lm
from penstock.server.http.limits import Limits, RateGate, Rates, Streams, TokenBucket, network_of, read_limits, take
from penstock.server.http.responses import ApiError
from penstock.testing.builders import job_spec, node
from penstock.testing.harness import World
from tests.server.harness import Server, cluster_file, until

API = "/api/v1"


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def unix_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


def tries(rates: Rates, times: int, now_ms: int, caller: str = "ann") -> int:
    """Return how many of so many requests pass."""
    return sum(rates.take(caller, now_ms) == 0 for _ in range(times))


# Buckets.


def test_a_burst_passes_and_then_the_rate():
    rates = Rates(10, 5, 100)
    assert [tries(rates, 9, now) for now in (0, 99, 100, 1_000)] == [5, 0, 1, 5]


def test_a_refusal_says_when_the_next_token_is_there():
    bucket, _ = take(TokenBucket(1, 0), 10, 5, 0)
    bucket, wait_ms = take(bucket, 10, 5, 0)
    assert (take(bucket, 10, 5, wait_ms - 2)[1] > 0, take(bucket, 10, 5, wait_ms)[1]) == (True, 0)


@given(
    rate=st.floats(0.1, 10_000),
    burst=st.integers(1, 1_000),
    steps=st.lists(st.integers(-1_000, 10_000), max_size=200),
)
def test_in_no_time_more_passes_than_burst_and_rate_allow(rate, burst, steps):
    bucket, now, newest, passed = TokenBucket(burst, 0), 0, 0, 0
    for step in steps:
        now += step  # a clock that goes back gives nothing
        newest = max(newest, now)
        bucket, wait_ms = take(bucket, rate, burst, now)
        passed += wait_ms == 0
        assert 0 <= bucket.tokens <= burst
        assert passed <= burst + rate * newest / 1000 + 1e-6


@given(waits=st.lists(st.integers(100, 5_000), max_size=100))
def test_who_keeps_to_the_rate_is_never_refused(waits):
    bucket, now = TokenBucket(1, 0), 0
    for wait in waits:
        now += wait
        bucket, refused = take(bucket, 10.001, 1, now)
        assert not refused


def test_each_caller_has_a_rate_of_its_own():
    rates = Rates(10, 5, 100)
    assert [tries(rates, 9, 0, caller) for caller in ("ann", "bob")] == [5, 5]


def test_memory_is_bounded_and_who_comes_with_many_names_gets_one_rate():
    rates = Rates(10, 5, 100)
    passed = sum(tries(rates, 1, 0, f"10.0.{i // 256}.{i % 256}") for i in range(10_000))
    assert (len(rates), passed) == (101, 100 + 5)


def test_a_caller_is_forgotten_only_when_that_makes_no_difference():
    rates = Rates(10, 5, 1)
    assert tries(rates, 9, 0, "ann") == 5
    assert tries(rates, 9, 100, "bob") == 5  # from the shared one
    assert tries(rates, 9, 100, "ann") == 1
    assert tries(rates, 9, 10_000, "carol") == 5
    assert len(rates) <= 2


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("", "unix", False),
    ],
)
def test_a_caller_is_an_address_or_all_that_one_caller_has_of_ipv6(one, other, same):
    assert (network_of(one) == network_of(other)) is same


# The gate.


def test_the_defaults_let_thousands_of_requests_a_second_pass():
    gate = RateGate(Limits(), Clock())
    for _ in range(10_000):
        gate.check("ann", "")
    with pytest.raises(ApiError) as refused:
        gate.check("ann", "")
    assert (refused.value.details.status, refused.value.details.code) == (429, "too_many_requests")
    assert refused.value.headers == {"Retry-After": "1"}


def test_wrong_tokens_from_an_address_do_not_lock_its_users_out():
    gate = RateGate(Limits(failed_logins_burst=3), Clock())
    for _ in range(3):
        gate.check(None, "10.0.0.1")
    with pytest.raises(ApiError, match="without a valid token"):
        gate.check(None, "10.0.0.1")
    gate.check(None, "10.0.0.2")
    gate.check("ann", "10.0.0.1")


def entry(array: int = 0, **fields) -> NewJob:
    return NewJob(job_spec(**fields), array, field="jobs[0]")


def test_a_job_that_is_too_large_for_the_log_is_refused_by_its_name():
    gate = RateGate(Limits(), Clock())
    env = tuple((f"A{i}", "x" * 60_000) for i in range(20))
    with pytest.raises(ApiError) as refused:
        gate.admit((entry(env=env),), LiveJobs())
    (problem,) = refused.value.details.problems
    assert (refused.value.details.status, problem.code, problem.field) == (422, "too_large", "jobs[0]")
    gate.admit((entry(env=env[:10]),), LiveJobs())


def test_jobs_that_take_too_much_of_the_log_are_refused_as_a_whole():
    gate = RateGate(Limits(), Clock())
    with pytest.raises(ApiError) as refused:
        gate.admit([entry(env=(("A", "x" * 60_000),)) for _ in range(1_200)], LiveJobs())
    assert refused.value.details.status == 413
    gate.admit([entry(env=(("A", "x" * 60_000),)) for _ in range(1_000)], LiveJobs())


def test_a_spec_that_many_jobs_share_counts_once():
    gate, one = RateGate(Limits(), Clock()), entry(env=(("A", "x" * 60_000),))
    most = 100_000 * RECORD_BYTES + 2 * 60_000
    assert gate.admit((entry(100_000, env=(("A", "x" * 60_000),)),), LiveJobs()) < most
    assert gate.admit([one] * 100_000, LiveJobs()) < most


def live(count: int, tenant: str = "red", **fields) -> LiveJobs:
    w = World(node(), tenants=(Tenant("red"), Tenant("blue")))
    for _ in range(count):
        w.submit(1, tenant=tenant, **fields)
    return w.state.jobs


def test_live_jobs_of_one_tenant_leave_room_to_another():
    gate, jobs = RateGate(Limits(live_jobs=8), Clock()), live(4)
    with pytest.raises(ApiError, match="tenant 'red' has 4 live jobs; 1 more"):
        gate.share((entry(tenant="red"),), 1, jobs, 2)
    gate.share((entry(tenant="blue"),), 1, jobs, 2)
    gate.share((entry(tenant="red"),), 1, jobs, 1)  # there is nobody else


def test_bytes_of_live_jobs_of_one_tenant_leave_room_to_another():
    jobs = live(2, env=(("A", "x" * 10_000),))
    gate = RateGate(Limits(live_bytes=50_000), Clock())
    with pytest.raises(ApiError, match="bytes of live jobs"):
        gate.share((entry(tenant="red"),), 10_000, jobs, 2)
    gate.share((entry(tenant="blue"),), 10_000, jobs, 2)


def test_one_request_of_a_tenant_creates_no_more_jobs_than_others_can_wait_for():
    gate, jobs = RateGate(Limits(jobs_per_request=5), Clock()), live(0)
    gate.share((entry(tenant="red"), entry(tenant="red", array=4)), 1, jobs, 2)
    with pytest.raises(ApiError, match="may create 5 jobs, this one asks for 6") as refused:
        gate.share((entry(tenant="red"), entry(tenant="red", array=5)), 1, jobs, 2)
    assert (refused.value.details.code, "jobs_per_request" in refused.value.details.hint) == ("too_large", True)
    gate.share((entry(tenant="red", array=6),), 1, jobs, 1)  # there is nobody else


def test_new_jobs_of_a_tenant_are_bounded_at_once_and_a_second():
    clock = Clock()
    gate = RateGate(Limits(jobs_per_s=10, jobs_burst=100), clock)
    gate.jobs("red", 100)
    with pytest.raises(ApiError, match="more than 10 new jobs a second, 100 at once") as refused:
        gate.jobs("red", 50)
    assert refused.value.headers["Retry-After"] == "6"
    gate.jobs("blue", 100)
    clock.now += 5_000
    gate.jobs("red", 50)


def test_what_a_tenant_adds_to_the_log_is_bounded_at_once_and_a_day():
    clock = Clock()
    gate = RateGate(Limits(log_bytes_per_s=10**5, log_bytes_burst=10**6, log_bytes_per_day=2 * 10**6), clock)
    gate.log("red", 10**6)
    gate.log("blue", 10**6)
    with pytest.raises(ApiError, match="at once") as refused:
        gate.log("red", 5 * 10**5)
    assert refused.value.headers == {"Retry-After": "6"}
    clock.now += 10_000
    gate.log("red", 9 * 10**5)
    clock.now += 10_000
    with pytest.raises(ApiError, match="a day"):
        gate.log("red", 9 * 10**5)


def test_small_requests_are_counted_together():
    gate = RateGate(Limits(log_bytes_per_s=1, log_bytes_burst=2 * lm.PAID_AT_BYTES), Clock())
    for _ in range(2 * lm.PAID_AT_BYTES // 1_024 + 63):
        gate.log("red", 1_024)
    with pytest.raises(ApiError, match="at once"):
        gate.log("red", 1_024)


@pytest.mark.parametrize("limits", [{"log_bytes_burst": 10**6, "log_bytes_per_s": 1}, {"log_bytes_per_day": 10**6}])
def test_small_requests_are_refused_like_large_ones_until_there_is_room_again(limits):
    gate, passed = RateGate(Limits(**limits), Clock()), 0
    for _ in range(10_000):
        try:
            gate.log("red", 1_000)
        except ApiError:
            continue
        passed += 1_000
    assert 10**6 <= passed < 10**6 + lm.PAID_AT_BYTES


def test_one_request_that_is_larger_than_the_bucket_passes_once_and_leaves_a_debt():
    clock = Clock()
    gate = RateGate(Limits(log_bytes_per_s=10**5, log_bytes_burst=10**6), clock)
    gate.log("red", 3 * 10**6)
    clock.now += 10_000
    with pytest.raises(ApiError, match="at once"):
        gate.log("red", lm.PAID_AT_BYTES)


def test_more_live_jobs_than_there_is_room_for_are_refused():
    gate = RateGate(Limits(live_jobs=10), Clock())
    gate.admit((entry(4),), live(6))
    with pytest.raises(ApiError, match="at most 10 may be") as refused:
        gate.admit((entry(4),), live(7))
    assert refused.value.details.status == 503


# Streams.


ANN, BOB, EVE = Submitter("red", "ann"), Submitter("red", "bob"), Submitter("blue", "eve")


def test_streams_are_bounded_for_one_user_and_one_tenant_leaves_some_to_another():
    streams = Streams(2, 7)
    streams.begin(ANN)
    streams.begin(ANN)
    with pytest.raises(ApiError) as one:
        streams.begin(ANN)
    streams.begin(BOB)
    with pytest.raises(ApiError) as tenant:
        streams.begin(BOB)
    streams.begin(EVE)
    streams.end(ANN)
    streams.begin(BOB)
    assert (one.value.details.status, tenant.value.details.status) == (429, 503)


@pytest.mark.parametrize("ending", ["whole", "broken", "cancelled", "refused"])
def test_a_stream_is_counted_no_longer_than_it_is_sent(ending):
    streams = Streams(1, 2)
    if ending == "refused":
        streams.begin(ANN)
    sent: list[dict] = []

    async def content():
        yield b"one"
        if ending == "broken":
            raise RuntimeError("broken")
        if ending == "cancelled":
            await asyncio.sleep(60)

    async def receive():
        await asyncio.sleep(60)

    async def send(message):
        sent.append(message)

    async def run() -> None:
        response = lm.CountedStream(streams, ANN, content(), "text/event-stream")
        scope = {"type": "http", "asgi": {"spec_version": "2.4"}, "method": "GET", "headers": []}
        task = asyncio.create_task(response(scope, receive, send))
        await asyncio.sleep(0.01)
        if ending == "cancelled":
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert sent[0]["status"] == (429 if ending == "refused" else 200)
    assert streams._open.total() == (1 if ending == "refused" else 0)


# The file.


def test_limits_are_read_from_a_file(tmp_path):
    path = tmp_path / "limits.yaml"
    path.write_text("requests_per_s: 12.5\nstreams: 7\n")
    assert read_limits(path) == Limits(requests_per_s=12.5, streams=7)
    path.write_text("")
    assert read_limits(path) == Limits()


@pytest.mark.parametrize(
    "text", ["request_per_s: 1", "streams: 0", "streams: -1", "streams: x", "[1]", "a: b: c", "\xff"]
)
def test_a_file_that_sets_no_limits_is_refused_with_those_that_there_are(tmp_path, text):
    from penstock.core.model.errors import InvalidInput

    path = tmp_path / "limits.yaml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidInput) as refused:
        read_limits(path)
    assert "requests_per_s" in refused.value.hint


def test_every_limit_is_documented():
    from tests.server.harness import ROOT

    text = (ROOT / "docs" / "security.md").read_text()
    assert [name for name in Limits.__struct_fields__ if f"`{name}`" not in text] == []


# Over HTTP.


@pytest.fixture(scope="module")
def tight(tmp_path_factory):
    limits = {"requests_per_s": 1e-3, "requests_burst": 1_000, "failed_logins_per_s": 1e-3, "failed_logins_burst": 3}
    limits |= {"streams_per_user": 1, "live_jobs": 2}
    with Server(tmp_path_factory.mktemp("tight") / "data", limits=limits) as running:
        yield running


def test_limits_are_answered_as_problems_and_kept_over_a_restart(tight):
    claims = [{"X_Forwarded_For": f"10.0.0.{n}"} for n in range(4)]  # which nobody believes
    wrong = [tight.http("GET", f"{API}/jobs", token="wrong", **claim).status for claim in claims]
    assert wrong == [401, 401, 401, 429]
    over = tight.http("POST", f"{API}/jobs", json.dumps([{"command": "true"}] * 3).encode())
    assert (over.status, over.json()["code"]) == (503, "overloaded")
    assert msgspec.yaml.decode((tight.data.root / "limits.yaml").read_bytes())["requests_burst"] == 1_000


@pytest.mark.parametrize("route", ["jobs", "plan"])
def test_what_names_stand_for_is_refused_before_anything_is_worked_out(tight, route):
    turns = [{"name": "xy"[i % 2], "command": "true"} for i in range(400)]
    many = [{"name": "z", "command": "true", "after_any": "x"}] * 501
    answer = tight.http("POST", f"{API}/{route}", json.dumps([*turns, *many]).encode())
    (problem,) = answer.json()["problems"]
    assert (answer.status, problem["code"], problem["value"]) == (422, "too_many_dependencies", "100200")


def test_one_stream_too_many_is_refused_and_room_is_made_when_one_ends(tight):
    from tests.server.routes.test_events import Stream

    first = Stream(tight)
    assert first.response.status == 200
    second = Stream(tight)
    assert (second.response.status, second.response.headers["Retry-After"]) == (429, "1")
    second.close()
    first.close()
    until(lambda: tight.http("GET", f"{API}/events/stream", read=False).status == 200, "there is room again")


def test_too_many_requests_are_told_when_to_come_back(tight):
    tries = (tight.http("GET", f"{API}/cluster") for _ in range(1_000))
    last = next(answer for answer in tries if answer.status != 200)
    assert (last.status, last.json()["code"], int(last.headers["retry-after"]) > 1) == (429, "too_many_requests", True)
    assert tight.http("GET", f"{API}/health", token="").status == 200


def test_a_page_of_large_records_ends_early_and_the_next_goes_on_after_it(monkeypatch):
    from penstock.core.model.events import JobSubmitted, Record
    from penstock.core.state.tokens import local_scope
    from penstock.server.views import reads

    monkeypatch.setattr(reads, "PAGE_MAX_BYTES", 200_000)
    monkeypatch.setattr(reads, "READ_MAX", 4)
    large = job_spec(env=(("A", "x" * 60_000),))
    log = [Record(n, 0, JobSubmitted(n, large, "ann")) for n in range(1, 21)]

    class Reader:
        def records(self, after: int, limit: int) -> list[Record]:
            return log[after : after + limit]

    some, looked = reads.Reads(None, Reader(), lambda: 0).records(local_scope("ann"), 0, 10_000, 100_000)
    assert (some, looked) == (log[:2], 2)
    found, after, pages = [], 0, []
    while page := reads.Reads(None, Reader(), lambda: 0).records(local_scope("ann"), after, 10_000)[0]:
        found += page
        after, pages = page[-1].seq, [*pages, len(page)]
    assert (found, pages) == (log, [4, 4, 4, 4, 4])


def test_jobs_of_a_tenant_are_counted_where_there_is_another(tmp_path):
    shared = {"tenants": [{"name": "default"}, {"name": "other"}], "users": [{"name": "ann", "tenants": ["default"]}]}
    declared = cluster_file(1, job_account="nobody") | shared
    limits = {"jobs_per_request": 3, "jobs_per_s": 1, "jobs_burst": 3}
    with Server(tmp_path, declared, limits=limits) as running:
        token = running.client.create_token({"user": "ann"}).token

        def submitted(count: int, token: str = token) -> tuple[int, str]:
            body = json.dumps({"command": "true", "array": count}).encode()
            answer = running.http("POST", f"{API}/jobs", body, token=token)
            return answer.status, answer.json().get("code", "")

        assert submitted(4) == (413, "too_large")
        assert [submitted(3)[0], submitted(3)] == [201, (429, "too_many_requests")]
        assert submitted(5, running.token)[0] == 201
