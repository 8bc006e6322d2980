"""Pods of a gang wait for each other, and for nobody who does not come."""

import asyncio

import msgspec
import pytest

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.core.model.resources import ReplicaAsk, Resources
from penstock.engines.kubernetes.gangs.gang import Facts, Gang, Slot
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.together import Together
from tests.engines.kubernetes.helpers import run, until
from tests.engines.kubernetes.storage import using


def key(rank, attempt=1):
    return ReplicaKey(JobId(7), AttemptNumber(attempt), Rank(rank))


def gang(*nodes, claims=True):
    """Return a gang with a pod for each of these nodes, '' for one that waits."""
    volumes = using("data") if claims else []
    pods = {
        f"p{i}": msgspec.convert({"metadata": {"name": f"p{i}"}, "spec": {"nodeName": n, "volumes": volumes}}, Pod)
        for i, n in enumerate(nodes)
    }
    slots = [Slot(ReplicaAsk(Resources(1)), name) for name in pods]
    return Gang("ns", "team", Facts(len(pods)), pods, slots=slots)


class Watched:
    """Replicas that wait, and those that do no more."""

    def __init__(self, of, *ranks):
        self.together, self.passed = Together(), []
        for rank in ranks:
            self.together.begin(of, key(rank))

    def ready(self, rank):
        async def wait():
            await self.together.ready(key(rank), lambda: self.together.wanted(key(rank)))
            self.passed.append(rank)

        return asyncio.create_task(wait())


def test_each_waits_for_all_that_are_there_also_for_those_that_were_not_begun():
    async def play():
        w = Watched(gang("", "", ""), 0)
        first, second = w.ready(0), w.ready(1)
        await asyncio.sleep(0.02)
        assert w.passed == []
        await asyncio.gather(w.ready(2), first, second)
        assert sorted(w.passed) == [0, 1, 2]

    run(play)


@pytest.mark.parametrize(
    "of", [gang("", "n1"), gang("", "", claims=False)], ids=["one that runs", "a gang that claims nothing"]
)
def test_nobody_waits_without_need(of):
    async def play():
        w = Watched(of, 0)
        await w.ready(0)
        assert w.passed == [0]

    run(play)


def test_nobody_waits_for_one_that_has_left():
    async def play():
        w = Watched(gang("", ""), 0)
        waiting = w.ready(0)
        await asyncio.sleep(0.02)
        assert w.passed == []
        w.together.leave(key(1))
        await waiting
        assert w.together.wanted(key(0))

    run(play)


def test_none_is_wanted_once_one_has_failed_but_those_of_the_next_attempt():
    async def play():
        w = Watched(gang("", ""), 0, 1)
        waiting = w.ready(0)
        w.together.fail(key(1, attempt=2))
        assert w.together.wanted(key(0))
        w.together.fail(key(1))
        await waiting
        assert not w.together.wanted(key(0))
        assert w.together.wanted(key(0, attempt=2))
        w.together.forget(JobId(7))
        assert w.together.wanted(key(0))

    run(play)


def test_one_that_is_made_anew_is_waited_for_again():
    async def play():
        w = Watched(gang("", ""), 0, 1)
        await asyncio.gather(w.ready(0), w.ready(1))
        w.together.begin(gang("", ""), key(1))
        waiting = w.ready(0)
        await asyncio.sleep(0.02)
        assert w.passed.count(0) == 1
        w.together.leave(key(1))
        await waiting
        await until(lambda: w.passed.count(0) == 2)

    run(play)
