"""Conditions of pods: each text once, the oldest first, and a write that fails leads to no second one by itself."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import msgspec
import pytest

from penstock.core.model.ids import JobId
from penstock.engines.kubernetes import saying
from penstock.engines.kubernetes.gangs.gang import Facts, Gang, Refused, Slot
from penstock.engines.kubernetes.gangs.registry import Gangs
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.saying import Saying
from penstock.engines.kubernetes.server import Outlook
from penstock.sim.apiserver.requests import Fault
from penstock.testing.kubernetes.server import ApiServer
from tests.engines.kubernetes.helpers import put_pod, run, served, until


class Outlooks:
    """A server that says why jobs wait; nothing else is asked here."""

    def __init__(self) -> None:
        self.outlook = Outlook("no_room", "needs 1 x 2 devices")
        self.asked: list[list[JobId]] = []

    def outlooks(self, job_ids: Any, on_reply: Any) -> None:
        self.asked.append(list(job_ids))
        on_reply(dict.fromkeys(job_ids, self.outlook))


class Said:
    def __init__(self, server: ApiServer, speaker: Saying, gangs: Gangs, outlooks: Outlooks) -> None:
        self.server, self.saying, self.gangs, self.outlooks = server, speaker, gangs, outlooks

    def put(self, name: str) -> Pod:
        return msgspec.convert(put_pod(self.server, name), Pod, strict=False)

    def gang(self, pod: Pod, job_id: int = 1) -> Gang:
        gang = self.gangs.put(pod, ("default", f"pod/{pod.metadata.name}"), Facts())
        self.gangs.submitted(gang, JobId(job_id))
        return gang

    def condition(self, name: str) -> dict[str, Any]:
        conditions = self.server.store.all_of("pods")["default", name]["status"].get("conditions", ())
        return next((one for one in conditions if one["type"] == "PodScheduled"), {})

    def says(self, name: str, text: str) -> bool:
        return self.condition(name).get("message") == text

    def patches(self, name: str = "") -> int:
        return sum(seen.method == "PATCH" and name in seen.path for seen in self.server.seen)


@contextlib.asynccontextmanager
async def speaking() -> AsyncIterator[Said]:
    async with served() as (server, client):
        gangs, outlooks, wrote = Gangs(), Outlooks(), list[Pod]()
        speaker = Saying(client, gangs, outlooks, wrote.append)  # type: ignore[arg-type]
        task = asyncio.create_task(speaker.run())
        try:
            yield Said(server, speaker, gangs, outlooks)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PAUSE_S", 0.0), ("LOOK_S", 0.01), ("FIRST_S", 0.0), ("LATER_S", 0.02)):
        monkeypatch.setattr(saying, name, value)


def test_a_text_is_written_once_and_again_when_it_differs() -> None:
    async def work() -> None:
        async with speaking() as c:
            pod = c.put("one")
            for text in ("first", "first", "second", "second"):
                c.saying.refuse([pod], Refused("Reason", text))
                await until(partial(c.says, "one", text))
            assert c.patches("one/status") == 3, "one is refused: the pod has changed since it was seen"
            assert {k: c.condition("one")[k] for k in ("status", "reason")} == {"status": "False", "reason": "Reason"}

    run(work)


def test_only_the_last_text_of_a_pod_is_written() -> None:
    async def work() -> None:
        async with speaking() as c:
            pod = c.put("one")
            for text in ("first", "second", "third"):
                c.saying.refuse([pod], Refused("Reason", text))
            await until(lambda: c.condition("one") != {})
            assert (c.condition("one")["message"], c.patches()) == ("third", 1)

    run(work)


def test_a_condition_is_written_on_the_very_pod() -> None:
    """One that was made anew under its name does not say what its predecessor lacked."""

    async def work() -> None:
        async with speaking() as c:
            old = c.put("one")
            c.server.store.delete(c.server.store.kind("", "pods"), ("default", "one"), 0)
            new = c.put("one")
            c.saying.refuse([old], Refused("Reason", "text"))
            await until(lambda: c.patches() == 1)
            other = c.put("other")
            c.saying.refuse([other], Refused("Reason", "text"))
            await until(lambda: c.condition("other") != {})
            assert c.condition("one") == {}
            c.saying.refuse([new], Refused("Reason", "text"))
            await until(lambda: c.condition("one") != {})

    run(work)


def test_what_could_not_be_written_is_written_when_it_is_said_again() -> None:
    async def work() -> None:
        async with speaking() as c:
            pod, other = c.put("one"), c.put("other")
            c.server.faults.append(Fault("PATCH", "one/status", 403))
            c.saying.refuse([pod, other], Refused("Reason", "text"))
            await until(lambda: c.condition("other") != {} and c.patches() == 2)
            assert c.condition("one") == {}
            while not c.says("one", "text"):
                c.saying.refuse([pod], Refused("Reason", "text"))
                await asyncio.sleep(0.005)

    run(work)


def test_a_pod_that_is_gone_is_forgotten() -> None:
    async def work() -> None:
        async with speaking() as c:
            pod = c.put("one")
            c.saying.refuse([pod], Refused("Reason", "text"))
            c.saying.forget(pod.key)
            other = c.put("other")
            c.saying.refuse([other], Refused("Reason", "text"))
            await until(lambda: c.condition("other") != {})
            assert (c.patches("one"), c.condition("one")) == (0, {})

    run(work)


@pytest.mark.parametrize(
    ("code", "reason", "event"),
    [
        ("quota", "QuotaExceeded", "QuotaExceeded"),
        ("not_lent", "QuotaExceeded", "QuotaExceeded"),
        ("reserve", "QuotaExceeded", "QuotaExceeded"),
        ("admission", "QuotaExceeded", "QuotaExceeded"),
        ("tenant_held", "QuotaExceeded", "QuotaExceeded"),
        ("held", "QuotaExceeded", "QuotaExceeded"),
        ("dependency", "QuotaExceeded", "QuotaExceeded"),
        ("array_turn", "QuotaExceeded", "QuotaExceeded"),
        ("no_room", "Unschedulable", "FailedScheduling"),
        ("never", "Unschedulable", "FailedScheduling"),
    ],
)
def test_only_what_more_nodes_would_help_is_unschedulable(code: str, reason: str, event: str) -> None:
    """Autoscalers buy nodes for it: KAI#1615, volcano PR#5033."""

    async def work() -> None:
        async with speaking() as c:
            c.outlooks.outlook = Outlook(code, "why")
            c.gang(c.put("one"))
            await until(lambda: len(c.server.store.all_of("events")) == 1 and c.condition("one") != {})
            (written,) = c.server.store.all_of("events").values()
            assert (c.condition("one")["reason"], written["reason"], written["note"]) == (reason, event, "why")

    run(work)


def test_a_gang_that_has_a_place_says_nothing() -> None:
    async def work() -> None:
        async with speaking() as c:
            placed, waits = c.gang(c.put("placed")), c.gang(c.put("waits"), 2)
            placed.slots = [Slot(ask=None, key="1.1.0")]  # type: ignore[arg-type]
            await until(lambda: c.condition("waits") != {})
            assert c.condition("placed") == {}
            assert all(asked == [waits.job_id] for asked in c.outlooks.asked)

    run(work)


def test_gangs_are_looked_at_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saying, "GANGS_AT_A_TIME", 2)

    async def work() -> None:
        async with speaking() as c:
            for number in range(5):
                c.gang(c.put(f"p{number}"), number + 1)
            await until(lambda: all(c.condition(f"p{number}") for number in range(5)))
            assert max(map(len, c.outlooks.asked)) == 2
            assert {job_id for asked in c.outlooks.asked[:3] for job_id in asked} == set(range(1, 6))

    run(work)
