"""Pods, gangs and Jobs from their creation to their end, through the engine and the API server."""

import asyncio

from tests.e2e_kubernetes.kube import JOBS, NODES, PODS
from tests.e2e_kubernetes.live import Live, condition, live, standing, timed

REPLICA, DEVICES = "penstock.dev/replica", "penstock.dev/devices"


async def suspended(c: Live, name: str) -> bool:
    return bool((await c.known(JOBS, name))["spec"]["suspend"])


async def settled(c: Live, jobs: list[tuple[str, str]]) -> None:
    """Wait until the server has these jobs."""

    async def has() -> bool:
        return c.jobs() == jobs

    await c.until(has)


@live("n1")
async def test_a_pod_is_bound_and_says_which_devices_are_its_own(c: Live) -> None:
    await c.ask("a", 2)
    await c.ask("b", 2)
    assert await c.run("a", "b") == ["n1", "n1"]
    told = [(await c.known(PODS, name))["metadata"]["annotations"] for name in ("a", "b")]
    assert all(one[REPLICA] for one in told)
    taken = [device for one in told for device in one[DEVICES].split(",")]
    assert sorted(taken) == ["0", "1", "2", "3"]
    assert condition(await c.known(PODS, "a"), "PodScheduled")["status"] == "True"


@live("n1")
async def test_a_pod_that_does_not_fit_says_what_is_missing(c: Live) -> None:
    await c.ask("first", 3)
    await c.run("first")
    await c.ask("large", 4)
    assert "nvidia.com/gpu" in await c.waits("large")
    assert condition(await c.known(PODS, "large"), "PodScheduled")["lastTransitionTime"]
    event = await c.event("large")
    assert (event["reason"], event["type"]) == ("FailedScheduling", "Warning")
    assert event["regarding"]["uid"] == (await c.known(PODS, "large"))["metadata"]["uid"]


@live("n1", "n2")
async def test_a_pod_goes_where_its_selector_says(c: Live) -> None:
    await c.ask("a", nodeSelector={"disk": "n2"})
    await c.ask("b", nodeSelector={"disk": "none"})
    assert await c.run("a") == ["n2"]
    await c.waits("b")


@live("n1")
async def test_a_pod_that_ends_frees_its_devices(c: Live) -> None:
    await c.ask("a", 4)
    await c.run("a")
    await c.ask("b", 4)
    await c.waits("b")
    c.exits["a"] = 0
    assert await c.run("b") == ["n1"]
    assert await c.phases("a") == ["Succeeded"]


@live("n1")
async def test_a_pod_that_is_deleted_while_it_waits_leaves_no_job(c: Live) -> None:
    await c.ask("large", 5)
    await c.waits("large")
    await c.delete(PODS, "large")
    await settled(c, [])
    assert await c.get(PODS, "large") is None


@live("n1")
async def test_a_gated_pod_is_bound_once_its_gates_are_lifted(c: Live) -> None:
    await c.ask("gated", schedulingGates=[{"name": "example.com/wait"}])
    await c.ask("other")
    await c.run("other")
    assert await c.where("gated") == [""]
    c.right(await c.patch(PODS, "gated", {"spec": {"schedulingGates": None}}))
    assert await c.run("gated") == ["n1"]


@live("n1")
async def test_nothing_is_bound_to_a_cordoned_node(c: Live) -> None:
    c.right(await c.patch(NODES, c.node("n1"), {"spec": {"unschedulable": True}}))

    async def known() -> bool:
        return bool(c.state.nodes[c.node("n1")].spec.taints)

    await c.until(known)
    await c.ask("a")
    await c.waits("a")
    c.right(await c.patch(NODES, c.node("n1"), {"spec": {"unschedulable": None}}))
    assert await c.run("a") == ["n1"]


# Gangs.


@live("n1", "n2")
async def test_a_gang_starts_whole(c: Live) -> None:
    names = await c.gang("team", 4, 2)
    assert sorted(await c.run(*names)) == ["n1", "n1", "n2", "n2"]


@live("n1", "n2")
async def test_a_gang_without_room_for_one_of_its_pods_does_not_start(c: Live) -> None:
    await c.ask("first", 3)
    await c.run("first")
    names = await c.gang("team", 2, 4)
    await c.waits(*names)
    c.exits["first"] = 0
    assert sorted(await c.run(*names)) == ["n1", "n2"]


@live("n1")
async def test_a_gang_waits_for_the_last_of_its_pods(c: Live) -> None:
    labels = {"penstock.dev/gang": "team", "penstock.dev/gang-size": "2"}
    await c.ask("team-0", labels=labels)
    await c.ask("other")
    await c.run("other")
    assert await c.where("team-0") == [""]
    await c.ask("team-1", labels=labels)
    assert await c.run("team-0", "team-1") == ["n1", "n1"]


# Jobs.


@live("n1")
async def test_a_suspended_job_is_started_with_all_its_pods_and_ends(c: Live) -> None:
    await c.job("train", 2, 2)
    pods = await c.has("train", 2)
    assert not await suspended(c, "train")
    assert all(one["metadata"]["annotations"][REPLICA] for one in pods)
    c.exits.update(dict.fromkeys((one["metadata"]["name"] for one in pods), 0))

    async def complete() -> bool:
        return condition(await c.known(JOBS, "train"), "Complete").get("status") == "True"

    await c.until(complete)
    await settled(c, [])


@live("n1")
async def test_a_job_without_room_stays_suspended_and_says_why(c: Live) -> None:
    await c.ask("first", 3)
    await c.run("first")
    await c.job("train", 2, 2)
    event = await c.event("train")
    assert event["regarding"]["kind"] == "Job"
    assert any(sign.isdecimal() for sign in event["note"])
    assert (await suspended(c, "train"), await c.pods_of("train")) == (True, [])
    c.exits["first"] = 0
    await c.has("train", 2)


# Others.


@live("n1")
async def test_pods_of_other_schedulers_are_load(c: Live) -> None:
    await c.ask("theirs", 3, schedulerName="nobody")
    assert (await c.bind("theirs", c.node("n1"))).status == 201
    await c.run("theirs")

    async def counted() -> bool:
        return len(c.state.nodes[c.node("n1")].others.devices) == 3

    await c.until(counted)
    await c.ask("ours", 2)
    await c.waits("ours")
    await c.delete(PODS, "theirs")
    assert await c.run("ours") == ["n1"]


@live("n1")
async def test_pods_of_other_schedulers_are_left_alone(c: Live) -> None:
    await c.ask("theirs", schedulerName="nobody")
    await c.ask("ours")
    await c.run("ours")
    assert (await c.where("theirs"), [name for name, _ in c.jobs()]) == ([""], ["ours"])


def test_a_restart_of_the_server_finds_what_it_has_bound() -> None:
    async def work() -> None:
        async with standing("n1") as c:
            async with c.serving():
                await c.ask("before", 2)
                await c.run("before")
            told = (await c.known(PODS, "before"))["metadata"]
            await c.ask("between", 4)
            async with c.serving():
                await c.ask("after", 2)
                await c.run("after")
                await c.waits("between")
                now = (await c.known(PODS, "before"))["metadata"]
                assert (now["uid"], now["annotations"]) == (told["uid"], told["annotations"])
                c.exits.update(before=0, after=0)
                assert await c.run("between") == ["n1"]

    timed(work)


def test_what_happened_while_no_server_ran_is_noticed() -> None:
    async def work() -> None:
        async with standing("n1", "n2") as c:
            async with c.serving():
                for name in ("ended", "deleted", "stays"):
                    await c.ask(name, 2)
                await c.run("ended", "deleted", "stays")
            c.exits["ended"] = 0
            await c.delete(PODS, "deleted")
            await c.gone(PODS, "deleted")
            await asyncio.sleep(0)
            async with c.serving():
                await settled(c, [("stays", "running")])
                names = await c.gang("next", 3, 2)
                assert len(await c.run(*names)) == 3

    timed(work)
