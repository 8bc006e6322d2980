"""Objects that were deleted and made anew under their names while a write to them was on its way."""

import asyncio
import itertools
from typing import Any

import msgspec

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, NodeName, Rank
from penstock.engines.kubernetes import binding
from penstock.engines.kubernetes.binding import GONE, Binder
from penstock.engines.kubernetes.gangs.workloads import ELASTIC_JOBS
from penstock.engines.kubernetes.objects.penstock import ElasticJob, ElasticJobStatus
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.operator import making
from penstock.engines.kubernetes.operator.statuses import Statuses
from penstock.sim.apiserver.controllers import let_run
from penstock.sim.apiserver.kinds import bind
from penstock.sim.apiserver.requests import Fault
from penstock.testing.kubernetes.server import ApiServer
from tests.engines.kubernetes.helpers import drop_pod, label_pod, put_pod, run, served, until

KEY = ReplicaKey(JobId(7), AttemptNumber(1), Rank(0))
CONTAINERS = [{"name": "main", "image": "none"}]


def pod(one: Any) -> Pod:
    return msgspec.convert(one, Pod)


def elastic(server: ApiServer) -> ElasticJob:
    body = {"metadata": {"name": "train"}, "spec": {"template": {"spec": {"containers": CONTAINERS}}}}
    made = server.store.create(server.store.kind("penstock.dev", "elasticjobs"), "default", body)
    return msgspec.convert(made, ElasticJob)


def elastic_twice(server: ApiServer) -> tuple[ElasticJob, ElasticJob]:
    """Return an ElasticJob, and the one that was made under its name."""
    first = elastic(server)
    server.store.delete(server.store.kind("penstock.dev", "elasticjobs"), ("default", "train"))
    return first, elastic(server)


def status(server: ApiServer) -> Any:
    return server.store.all_of("elasticjobs")["default", "train"].get("status", {})


def test_a_start_is_given_up_for_good_where_the_pod_is_another_one() -> None:
    async def work() -> None:
        async with served() as (server, client):
            old = pod(put_pod(server, "a"))
            drop_pod(server, "a")
            put_pod(server, "a")
            server.faults += [Fault("POST", "binding", 504), Fault("GET", "/pods/a", 500)]
            wanted = itertools.chain([True], itertools.repeat(False))
            told = await Binder(client, lambda _: None).bind(old, NodeName("n1"), KEY, (), lambda: next(wanted))
            assert told == GONE
            assert server.store.all_of("pods")["default", "a"]["metadata"].get("annotations") is None

    run(work)


def test_an_eviction_that_had_to_wait_is_for_the_pod_as_it_is_by_then(monkeypatch: Any) -> None:
    """One of an outdated version costs the budget its last disruption, and is refused."""
    monkeypatch.setattr(binding, "EVICTION_WAIT_S", 0.01)

    async def work() -> None:
        async with served() as (server, client):
            put_pod(server, "a", labels={"app": "x"})
            kind = server.store.kind("", "pods")
            bind(server.store, kind, "default", {"metadata": {"name": "a"}, "target": {"name": "n1"}})
            let_run(server.store, ("default", "a"))
            spec = {"selector": {"matchLabels": {"app": "x"}}, "minAvailable": 1}
            budgets = server.store.kind("policy", "poddisruptionbudgets")
            server.store.create(budgets, "default", {"metadata": {"name": "b"}, "spec": spec})
            known = pod(server.store.get(kind, ("default", "a")))
            server.faults.append(Fault("POST", "eviction", 429, times=3))
            evicting = asyncio.create_task(Binder(client, lambda _: None).evict(known, 1000, "why", lambda: True))
            await until(lambda: sum("eviction" in seen.path for seen in server.seen) == 2)
            label_pod(server, "a", app="x", other="y")
            allowed = {"status": {"disruptionsAllowed": 1}}
            server.store.update(budgets, ("default", "b"), lambda one: {**one, **allowed}, part="status")
            await evicting
            assert server.store.get(kind, ("default", "a"))["metadata"]["deletionTimestamp"]
            assert sum("eviction" in seen.path for seen in server.seen) == 4

    run(work)


def test_the_job_of_an_elastic_job_is_not_named_on_another_one() -> None:
    """Else the new one would take the end of the old one's job for its own."""

    async def work() -> None:
        async with served() as (server, client):
            old, new = elastic_twice(server)
            maker = making.Maker(client, lambda: {("default", "train"): new}, {}, lambda _: None, lambda: "log")
            assert await maker._name_job(old, KEY, lambda: True) == making.GONE
            assert "job" not in status(server)
            assert await maker._name_job(new, KEY, lambda: True) == ""
            assert status(server)["job"] == 7

    run(work)


def test_the_job_of_an_elastic_job_that_was_changed_meanwhile_is_named() -> None:
    async def work() -> None:
        async with served() as (server, client):
            old = elastic(server)
            kind, key = server.store.kind("penstock.dev", "elasticjobs"), ("default", "train")
            changed = server.store.update(kind, key, lambda one: {**one, "spec": {**one["spec"], "suspend": True}})
            now = msgspec.convert(changed, ElasticJob)
            maker = making.Maker(client, lambda: {key: now}, {}, lambda _: None, lambda: "log")
            assert await maker._name_job(old, KEY, lambda: True) == ""
            assert status(server)["job"] == 7

    run(work)


def test_a_status_is_not_written_on_another_object() -> None:
    async def work() -> None:
        async with served() as (server, client):
            old, new = elastic_twice(server)
            statuses, failed = Statuses(client), []
            statuses.write(ELASTIC_JOBS, old, ElasticJobStatus(phase="Running"), lambda: failed.append(old))
            await until(lambda: bool(failed))
            assert status(server) == {}
            statuses.write(ELASTIC_JOBS, new, ElasticJobStatus(phase="Running"))
            await until(lambda: status(server).get("phase") == "Running")
            statuses.close()

    run(work)
