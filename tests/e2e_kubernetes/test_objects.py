"""ElasticJobs, Queues and ComputePools: what becomes of them, and what their statuses say."""

from typing import Any

from tests.e2e_kubernetes.kube import ELASTIC, PODS, POOLS, QUEUES
from tests.e2e_kubernetes.live import Live, condition, live, standing, template, timed


async def elastic(c: Live, low: int = 2, high: int = 2, gpus: int = 1, **spec: Any) -> None:
    """Create the ElasticJob `train`."""
    scaling = {"minReplicas": low, "maxReplicas": high, "gpuPerReplica": gpus}
    await c.make(ELASTIC, "train", spec={"template": template(0), "scaling": scaling, **spec})


async def reaches(c: Live, phase: str, **also: Any) -> Any:
    return await c.status(ELASTIC, "train", phase=phase, **also)


def names(pods: list[Any]) -> list[str]:
    return [one["metadata"]["name"] for one in pods]


def env(pod: Any) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in pod["spec"]["containers"][0]["env"]}


@live("n1", "n2")
async def test_an_elastic_job_starts_with_stable_host_names(c: Live) -> None:
    await elastic(c, gpus=4)
    status = await reaches(c, "Running", readyReplicas=2, attempt=1)
    assert (status["replicas"], status["observedGeneration"]) == (2, 1)
    pods = await c.pods_of("train")
    assert names(pods) == ["train-1-0", "train-1-1"]
    assert [(one["spec"]["hostname"], one["spec"]["subdomain"]) for one in pods] == [
        ("train-0", "train"),
        ("train-1", "train"),
    ]
    assert (env(pods[1])["MASTER_ADDR"], env(pods[1])["RANK"]) == (f"train-0.train.{c.name}.svc", "1")
    service = await c.known("/api/v1/services", "train")
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)


@live("n1")
async def test_an_elastic_job_ends_when_all_ranks_have_succeeded(c: Live) -> None:
    await elastic(c)
    await reaches(c, "Running", readyReplicas=2)
    c.exits.update({"train-1-0": 0, "train-1-1": 0})
    await reaches(c, "Succeeded", replicas=0)
    assert condition(await c.known(ELASTIC, "train"), "Finished")["status"] == "True"
    assert await c.phases("train-1-0", "train-1-1") == ["Succeeded", "Succeeded"]
    assert c.jobs() == []


@live("n1")
async def test_a_rank_that_fails_restarts_all_of_them(c: Live) -> None:
    await elastic(c, maxRestarts=1)
    await reaches(c, "Running", readyReplicas=2)
    c.exits["train-1-1"] = 3
    await reaches(c, "Running", attempt=2, readyReplicas=2)
    assert names(await c.pods_of("train")) == ["train-2-0", "train-2-1"]
    c.exits["train-2-0"] = 3
    await reaches(c, "Failed")
    assert "exit 3" in condition(await c.known(ELASTIC, "train"), "Finished")["message"]


@live("n1")
async def test_an_elastic_job_grows_when_it_is_scaled(c: Live) -> None:
    await elastic(c)
    await reaches(c, "Running", readyReplicas=2)
    c.right(await c.patch(ELASTIC, "train", {"spec": {"replicas": 4}}, "merge", "scale"))
    await reaches(c, "Running", readyReplicas=4)
    scale = c.right(await c.call("GET", c.path(ELASTIC, "train", "scale")))
    assert (scale["status"]["replicas"], scale["status"]["selector"]) == (4, "penstock.dev/elastic-job=train")


@live("n1")
async def test_an_elastic_job_leaves_while_it_is_suspended(c: Live) -> None:
    await elastic(c)
    await reaches(c, "Running", readyReplicas=2)
    c.right(await c.patch(ELASTIC, "train", {"spec": {"suspend": True}}))
    await reaches(c, "Suspended", replicas=0)
    assert await c.pods_of("train") == []
    c.right(await c.patch(ELASTIC, "train", {"spec": {"suspend": False}}))
    await reaches(c, "Running", readyReplicas=2)


@live("n1")
async def test_an_elastic_job_without_room_says_what_is_missing(c: Live) -> None:
    await elastic(c, gpus=5)

    async def why() -> Any:
        found = condition(await c.known(ELASTIC, "train"), "Placed")
        return found if found.get("reason") == "Unschedulable" else None

    found = await c.until(why)
    assert found["status"] == "False"
    assert any(sign.isdecimal() for sign in found["message"])
    assert await c.pods_of("train") == []


@live("n1")
async def test_a_template_that_the_api_server_refuses_is_said(c: Live) -> None:
    box = {"name": "main", "command": ["true"]}
    await elastic(c, template={"spec": {"containers": [box]}}, maxRestarts=0)

    async def why() -> bool:
        found = (await c.known(ELASTIC, "train")).get("status", {}).get("conditions", ())
        return any("image: Required value" in one["message"] for one in found)

    await c.until(why)
    assert await c.pods_of("train") == []


@live("n1")
async def test_a_deleted_elastic_job_takes_its_pods_along(c: Live) -> None:
    await elastic(c)
    await reaches(c, "Running", readyReplicas=2)
    await c.delete(ELASTIC, "train", propagationPolicy="Background")
    for name in ("train-1-0", "train-1-1"):
        await c.gone(PODS, name)

    async def over() -> bool:
        return c.jobs() == []

    await c.until(over)


@live("n1")
async def test_an_elastic_job_that_is_made_anew_is_another_one(c: Live) -> None:
    await elastic(c)
    first = (await reaches(c, "Running", readyReplicas=2))["job"]
    await c.delete(ELASTIC, "train", propagationPolicy="Background")
    await c.gone(ELASTIC, "train")
    await elastic(c, low=1, high=1)
    status = await reaches(c, "Running", readyReplicas=1)
    assert status["job"] != first
    assert len(await c.pods_of("train")) == 1


def test_an_elastic_job_goes_on_over_a_restart_of_the_server() -> None:
    async def work() -> None:
        async with standing("n1") as c:
            async with c.serving():
                await elastic(c)
                job = (await reaches(c, "Running", readyReplicas=2))["job"]
            c.exits.update({"train-1-0": 0, "train-1-1": 0})

            async def over() -> bool:
                return await c.phases("train-1-0", "train-1-1") == ["Succeeded", "Succeeded"]

            await c.until(over)
            async with c.serving():
                status = await reaches(c, "Succeeded")
                assert (status["job"], status["attempt"]) == (job, 1)

    timed(work)


# Queues and pools.


@live("n1")
async def test_a_queue_holds_its_pods_to_what_it_may_have(c: Live) -> None:
    queue = f"{c.name}-research"
    await c.make(QUEUES, queue, spec={"maxCapacity": {"nvidia.com/gpu": "1"}})

    async def applied() -> bool:
        return queue in c.state.config.queue_by_name

    await c.until(applied)
    for name in ("a", "b"):
        await c.ask(name, labels={"penstock.dev/queue": queue})
    status = await c.status(QUEUES, queue, running=1, waiting=1)
    assert (status["used"]["devices"], status["conditions"][0]["status"]) == ("1", "True")
    (waiting,) = [name for name in ("a", "b") if await c.where(name) == [""]]
    assert "1" in await c.waits(waiting, reason="QuotaExceeded")


@live("n1")
async def test_a_queue_that_is_wrong_says_so_and_is_not_applied(c: Live) -> None:
    queue = f"{c.name}-research"
    await c.make(QUEUES, queue, spec={"parent": "nobody"})

    async def said() -> Any:
        found = condition(await c.known(QUEUES, queue), "Ready")
        return found if found.get("status") == "False" else None

    assert "nobody" in (await c.until(said))["message"]
    assert queue not in c.state.config.queue_by_name


def test_a_pool_says_what_it_has_and_what_is_free() -> None:
    async def work() -> None:
        async with standing() as c:
            pool = f"{c.name}-a100"
            await c.add_node("n1", **{"penstock.dev/pool": pool})
            await c.add_node("n2")
            await c.make(POOLS, pool, spec={"capacity": {"total": 4}})
            async with c.serving():
                await c.status(POOLS, pool, phase="Ready", totalCapacity=4, availableCapacity=4)
                await c.ask("a", 3, labels={"penstock.dev/pool": pool})
                assert await c.run("a") == ["n1"]
                await c.status(POOLS, pool, allocatedCapacity=3, availableCapacity=1)

    timed(work)
