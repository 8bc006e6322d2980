"""Jobs of which a part has succeeded: what is left of them starts again, in the places that it needs."""

import pytest

from penstock.sim.apiserver.requests import Fault
from tests.engines.kubernetes.helpers import run, until
from tests.engines.kubernetes.scenes import HIGH, Scene, in_scene, scene


async def starts(c: Scene, name: str, size: int) -> None:
    """Wait until so many pods of a Job are, all of them bound."""
    await until(lambda: len(c.nodes_of(name)) == size and all(c.nodes_of(name)))


@pytest.mark.parametrize("done", [0, 1, 2])
def test_what_is_left_of_a_preempted_job_comes_back_whole(done: int) -> None:
    """A Job of three indexes of which one has succeeded makes two pods; its job still has three ranks."""

    async def work() -> None:
        async with scene("n1") as c:
            c.priority()
            c.job("train", 3)
            await starts(c, "train", 3)
            c.ends(c.pods_of("train")[done]["metadata"]["name"])
            c.pod("urgent", gpus=4, priorityClassName=HIGH)
            await until(lambda: c.where("urgent") == ["n1"])
            assert c.pods_of("train") == []
            c.ends("urgent")
            await starts(c, "train", 2)
            c.all_end("train")
            await until(lambda: c.states() == {})
            assert [row.state for row in c.disk.finished_jobs(9) if row.name == "train"] == ["succeeded"]

    run(work)


@in_scene("n1")
async def test_what_is_left_of_a_job_needs_room_for_that_alone(c: Scene) -> None:
    """Two of three pods are left, and two devices of four."""
    c.priority()
    c.job("train", 3)
    await starts(c, "train", 3)
    c.ends(c.pods_of("train")[1]["metadata"]["name"])
    c.pod("urgent", gpus=4, priorityClassName=HIGH)
    await until(lambda: c.where("urgent") == ["n1"])
    c.pod("other", gpus=2, priorityClassName=HIGH)
    c.ends("urgent")
    await starts(c, "train", 2)
    assert c.where("other") == ["n1"]


@pytest.mark.parametrize("done", [0, 1])
def test_what_is_left_of_a_job_starts_after_its_binding_was_refused(done: int) -> None:
    """The first Binding of one of two pods is refused for good; the other one has succeeded meanwhile."""

    async def work() -> None:
        async with scene("n1") as c:
            c.api.faults.append(Fault("POST", rf"pods/train-{1 - done}-[^/]*/binding", 403))
            c.job("train", 2)
            await until(lambda: any(c.nodes_of("train")))
            (bound,) = [pod["metadata"]["name"] for pod in c.pods_of("train") if pod["spec"].get("nodeName")]
            c.ends(bound)
            await starts(c, "train", 1)
            c.all_end("train")
            await until(lambda: c.states() == {})

    run(work)
