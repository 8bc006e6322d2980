"""Writes of a leader that was replaced: not sent, refused, or mended. The simulator holds each kind of them back."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from penstock.control import messages as msg
from penstock.control import pods as module
from penstock.control.inbox import InboxFull
from penstock.control.pods import PodJobs
from penstock.core.model.ids import NodeName
from penstock.engines.kubernetes import binding, nominating
from penstock.engines.kubernetes.api.client import Client
from penstock.engines.kubernetes.api.credentials import Access, FixedToken
from penstock.engines.kubernetes.api.errors import Conflict
from penstock.engines.kubernetes.binding import PODS, Binder
from penstock.engines.kubernetes.devices.extended import claim_name
from penstock.engines.kubernetes.devices.writing import ClaimWriter
from penstock.engines.kubernetes.gangs.workloads import of_job
from penstock.engines.kubernetes.names import TERM_ANNOTATION
from penstock.engines.kubernetes.objects.answers import AnyObject, Status
from penstock.engines.kubernetes.objects.devices import Consumer, ResourceClaim
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.objects.workloads import Job
from penstock.sim.apiserver.requests import Fault
from penstock.testing.kubernetes.server import ApiServer
from tests.engines.kubernetes.cluster import Cluster
from tests.engines.kubernetes.devices_made import claim_of, req
from tests.engines.kubernetes.helpers import pod, put_pod, run, served, until
from tests.engines.kubernetes.scenes import Scene, in_scene

RESULT = {"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": "gpu0"}
OURS = Consumer("pods", "a", "uid-a")


class Log:
    """What `PodJobs` asks: answers come when the test gives them."""

    clock, policies, shares_log = None, None, True
    controller = SimpleNamespace(epoch=3, state=SimpleNamespace(identity=SimpleNamespace(cluster="log")))

    def __init__(self) -> None:
        self.asked: list[Callable[[msg.Reply], None]] = []
        self.full = False

    def ask(self, request: msg.Request, on_reply: Any, caller: Any = None) -> None:
        assert request == msg.ConfirmLead()
        if self.full:
            self.full = False
            raise InboxFull("full")
        self.asked.append(on_reply)


def version(server: ApiServer, plural: str, name: str) -> str:
    return str(server.store.all_of(plural)["default", name]["metadata"]["resourceVersion"])


# Not sent.


def test_a_write_is_sent_once_it_is_known_that_its_server_leads() -> None:
    async def work() -> None:
        sure = asyncio.Event()
        async with ApiServer() as server, Client(Access(server.url, FixedToken()), leads=sure.wait) as client:
            writing = asyncio.create_task(client.write("POST", PODS.path("default"), pod("a"), Pod))
            assert (await client.page(PODS.path())).items == ()
            assert [seen.method for seen in server.seen] == ["GET"]
            sure.set()
            assert (await writing).metadata.name == "a"

    run(work)


def test_the_engine_of_a_server_writes_once_the_log_has_said_that_it_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    class Engine:
        def __init__(self, client: Client, *_: Any, **__: Any) -> None:
            self.client = client

        async def run(self) -> None:
            await self.client.write("POST", PODS.path("default"), pod("a"), Pod)

    monkeypatch.setattr(module, "KubernetesEngine", Engine)

    async def work() -> None:
        log = Log()
        async with ApiServer() as server:
            access = Access(server.url, FixedToken())
            following = asyncio.create_task(module.follow_cluster(access, log, lambda _: None))  # type: ignore[arg-type]
            await until(lambda: len(log.asked) == 1)
            assert server.seen == []
            log.asked[0](msg.Done())
            await following
            assert [seen.method for seen in server.seen] == ["POST"]

    run(work)


def test_what_was_asked_of_the_log_before_says_nothing_of_later_writes() -> None:
    async def work() -> None:
        log = Log()
        jobs = PodJobs(log)  # type: ignore[arg-type]
        first, second = asyncio.create_task(jobs.leads()), asyncio.create_task(jobs.leads())
        await until(lambda: len(log.asked) == 1)
        third = asyncio.create_task(jobs.leads())
        await asyncio.sleep(0)
        log.asked[0](msg.Done())
        await until(lambda: len(log.asked) == 2)
        assert [one.done() for one in (first, second, third)] == [True, False, False]
        log.asked[1](msg.Done())
        await asyncio.gather(second, third)
        assert len(log.asked) == 2

    run(work)


def test_the_log_is_asked_again_where_it_could_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUSY_S", 0.001)

    async def work() -> None:
        log = Log()
        log.full = True
        waiting = asyncio.create_task(PodJobs(log).leads())  # type: ignore[arg-type]
        await until(lambda: len(log.asked) == 1)
        log.asked[0](msg.RequestFailed("store", "the log is away"))
        await until(lambda: len(log.asked) == 2)
        assert not waiting.done()
        log.asked[1](msg.Done())
        await waiting

    run(work)


def test_nothing_is_asked_where_no_other_server_can_lead() -> None:
    async def work() -> None:
        log = Log()
        log.shares_log = False
        await PodJobs(log).leads()  # type: ignore[arg-type]
        assert log.asked == []

    run(work)


# On its way.


def claim(server: ApiServer, **meta: Any) -> ResourceClaim:
    """Return a claim that is given to a pod, as a former leader left it."""
    kind = server.store.kind("resource.k8s.io", "resourceclaims")
    annotations = {TERM_ANNOTATION: "log.1"}
    made = {"metadata": {"name": "c", "finalizers": ["resource.kubernetes.io/delete-protection"],
                         "annotations": annotations, **meta}, "spec": claim_of(req())}  # fmt: skip
    server.store.create(kind, "default", made)
    status = {"allocation": {"devices": {"results": [RESULT]}}, "reservedFor": [msgspec.to_builtins(OURS)]}
    given = server.store.update(kind, ("default", "c"), lambda one: {**one, "status": status}, part="status")
    return msgspec.convert(given, ResourceClaim)


def writer(client: Client, term: str, known: ResourceClaim) -> ClaimWriter:
    return ClaimWriter(client, lambda _: known, lambda _: None, lambda: term)


async def give(one: ClaimWriter) -> str:
    return await one.give("default/c", lambda: None, OURS, lambda _: True, lambda: True)


def test_a_claim_that_a_pod_has_already_is_not_taken_back_by_a_former_leader() -> None:
    async def work() -> None:
        async with served() as (server, client):
            known = claim(server)
            assert await give(writer(client, "log.2", known)) == ""
            with pytest.raises(Conflict):
                await writer(client, "log.1", known)._patch(known, {"status": {"reservedFor": None}}, "status")
            now = msgspec.convert(server.store.all_of("resourceclaims")["default", "c"], ResourceClaim)
            assert (now.status, now.metadata.finalizers) == (known.status, known.metadata.finalizers)
            assert await give(writer(client, "log.2", now)) == ""
            assert now.metadata.resource_version == version(server, "resourceclaims", "c"), "once in each term"

    run(work)


def test_a_claim_is_no_longer_taken_back_once_its_pod_starts() -> None:
    async def work() -> None:
        async with served() as (server, client):
            known, looks = claim(server), iter((True, False))
            server.faults.append(Fault("PATCH", "/c/status", 409))
            await writer(client, "log.1", known).take_back("default/c", OURS, devices=True, wanted=lambda: next(looks))
            assert server.store.all_of("resourceclaims")["default", "c"]["status"]["reservedFor"]

    run(work)


def test_a_binding_of_a_former_leader_fails_once_its_pod_is_fenced_off() -> None:
    async def work() -> None:
        async with served() as (server, client):
            known = msgspec.convert(put_pod(server, "a"), Pod)
            server.faults.append(Fault("PATCH", "/pods/a", 503))
            gone = msgspec.structs.replace(known, metadata=msgspec.structs.replace(known.metadata, name="b"))
            await Binder(client, lambda _: None, term=lambda: "log.2").fence([known, gone])
            body = binding._binding(known.metadata, NodeName("n1"), {})
            with pytest.raises(Conflict):
                await client.write("POST", PODS.path("default", "a", "binding"), body, Status)

    run(work)


def test_a_restart_fences_off_the_pods_with_places_before_it_introduces_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "WAIT_S", (0.005, 0.01))

    async def work() -> None:
        async with ApiServer() as api:
            c = Cluster(api)
            c.node("n1")
            api.faults.append(Fault("POST", "/binding", 503, times=10**6))
            async with c.serving():
                c.gang("team", 2, gpus=2)
                await until(lambda: ("team", "starting") in c.jobs())
                c.pod("late", gpus=4)
                await until(lambda: ("late", "waiting") in c.jobs())
            api.faults[:] = [Fault("PATCH", "/pods/team-0$", 503, times=10**6)]
            async with c.serving():
                await until(lambda: sum(seen.path.endswith("/pods/team-0") for seen in api.seen) > 5)
                assert c.engine.connected() == set()
                api.faults.clear()
                await until(lambda: c.where("team-0", "team-1") == ["n1", "n1"])
                marks = [
                    (c.get(name)["metadata"].get("annotations") or {}).get(TERM_ANNOTATION)
                    for name in ("team-0", "team-1", "late")
                ]
                assert marks == [f"{c.state.identity.cluster}.2"] * 2 + [None], "those without a place are left alone"

    run(work)


def test_a_job_is_not_suspended_by_a_former_leader_where_it_has_been_started_since() -> None:
    async def work() -> None:
        async with served() as (server, client):
            spec = {"suspend": False, "template": {"spec": {"containers": [{"name": "main", "image": "none"}]}}}
            body = {"metadata": {"name": "j"}, "spec": spec}
            job = of_job(msgspec.convert(server.store.create(server.store.kind("batch", "jobs"), "default", body), Job))
            sent: list[Any] = []

            class Held(Client):
                """Lets its last write come late."""

                async def patch(self, path: str, body: Any, *args: Any, **query: Any) -> Any:
                    if "spec" in body:
                        sent.append(body)
                        return AnyObject()
                    return await super().patch(path, body, *args, **query)

            async with Held(Access(server.url, FixedToken())) as held:
                await Binder(held, lambda _: None, term=lambda: "log.1").suspend(job, list, "")
            assert await Binder(client, lambda _: None, term=lambda: "log.2").start(job) == ""
            with pytest.raises(Conflict):
                await client.patch(job.path(), sent[0], AnyObject)
            assert server.store.all_of("jobs")["default", "j"]["spec"]["suspend"] is False

    run(work)


def test_what_a_pod_says_of_its_extended_resources_is_not_said_by_a_former_leader() -> None:
    """Its devices may be those of another node by then."""

    async def work() -> None:
        async with served() as (server, client):
            known = msgspec.convert(put_pod(server, "a"), Pod)
            bound = {"metadata": {"name": "a"}, "target": {"name": "n2"}}
            await client.write("POST", PODS.path("default", "a", "binding"), bound, Status)
            body = {"metadata": {"name": claim_name(known)}, "spec": claim_of(req())}
            told = await writer(client, "log.1", claim(server)).make(body, known, {"qosClass": "x"}, lambda: True)
            assert told == "it is gone"
            assert server.store.all_of("pods")["default", "a"]["status"]["qosClass"] != "x"

    run(work)


# Mended.


@in_scene("n1")
async def test_a_nomination_by_a_former_leader_is_taken_back(c: Scene) -> None:
    c.pod("huge", gpus=8)
    await c.waits("huge")
    c.set("huge", nominatedNodeName="n1")
    await until(lambda: not c.get("huge")["status"].get("nominatedNodeName"))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nominating, "LOOK_S", 0.01)
    monkeypatch.setattr(nominating, "CLEAR_S", 0.02)
