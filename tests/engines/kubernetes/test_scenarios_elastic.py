"""Scenarios of ElasticJobs: pods with stable host names, growing and shrinking, restarts, what the status says."""

import asyncio
from typing import Any

import pytest

from penstock.engines.kubernetes.gangs.workloads import of_elastic_job
from penstock.engines.kubernetes.objects.common import Metadata
from penstock.engines.kubernetes.objects.penstock import ElasticJob, ElasticJobSpec
from penstock.sim.apiserver.requests import Fault
from tests.engines.kubernetes.helpers import until
from tests.engines.kubernetes.scenes import Scene, in_scene, run, standing, template

EJ = "penstock.dev/elasticjobs"


def elastic(c: Scene, name: str = "train", low: int = 2, high: int = 2, gpus: int = 1, **spec: Any) -> Any:
    made = template(0, labels={"team": "vision"})
    scaling = {"minReplicas": low, "maxReplicas": high, "gpuPerReplica": gpus}
    return c.make(EJ, name, {"template": made, "scaling": scaling, **spec})


def status(c: Scene, name: str = "train") -> Any:
    return c.store.all_of("elasticjobs")["default", name].get("status") or {}


def condition(c: Scene, kind: str = "Placed", name: str = "train") -> tuple[str, str, str]:
    found = next((one for one in status(c, name).get("conditions", ()) if one["type"] == kind), {})
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


async def reaches(c: Scene, phase: str, name: str = "train", **also: Any) -> None:
    def there() -> bool:
        now = status(c, name)
        return now.get("phase") == phase and all(now.get(field) == value for field, value in also.items())

    async with asyncio.timeout(8):
        await until(there)


def env(pod: Any) -> dict[str, str]:
    return {one["name"]: one["value"] for one in pod["spec"]["containers"][0]["env"]}


@in_scene("n1", "n2")
async def test_its_ranks_have_stable_host_names_and_what_pytorch_needs(c: Scene) -> None:
    elastic(c, gpus=4, network={"kind": "infiniband", "interface": "eth0", "port": 29_400})
    await reaches(c, "Running", readyReplicas=2, attempt=1)
    first, second = c.pods_of("train")
    assert [first["metadata"]["name"], second["metadata"]["name"]] == ["train-1-0", "train-1-1"]
    assert [(one["spec"]["hostname"], one["spec"]["subdomain"]) for one in (first, second)] == [
        ("train-0", "train"),
        ("train-1", "train"),
    ]
    assert sorted(c.nodes_of("train")) == ["n1", "n2"]
    told = env(second)
    assert told["MASTER_ADDR"] == "train-0.train.default.svc"
    assert (told["MASTER_PORT"], told["WORLD_SIZE"], told["RANK"], told["NODE_RANK"]) == ("29400", "2", "1", "1")
    assert (told["PET_NNODES"], told["PET_MASTER_PORT"]) == ("2", "29400")
    assert (told["NCCL_IB_DISABLE"], told["NCCL_SOCKET_IFNAME"]) == ("0", "eth0")
    assert first["metadata"]["labels"]["team"] == "vision"
    service = c.store.all_of("services")["default", "train"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert condition(c) == ("True", "Running", "2 of 2 replicas hold places, 2 run")
    assert status(c)["selector"] == "penstock.dev/elastic-job=train"


@in_scene("n1")
async def test_it_ends_when_all_ranks_have_succeeded(c: Scene) -> None:
    elastic(c)
    await reaches(c, "Running")
    c.all_end("train")
    await reaches(c, "Succeeded", replicas=0)
    assert condition(c, "Finished")[:2] == ("True", "Succeeded")
    await asyncio.sleep(0.3)
    assert len(c.store.all_of("pods")) == 2  # their output can still be read, and none is made anew
    assert c.states() == {}


@in_scene("n1")
async def test_a_rank_that_fails_restarts_all_of_them_as_often_as_it_may(c: Scene) -> None:
    elastic(c, maxRestarts=1)
    await reaches(c, "Running", attempt=1)
    c.ends("train-1-1", 3)
    await reaches(c, "Running", attempt=2)
    assert [pod["metadata"]["name"] for pod in c.pods_of("train")] == ["train-2-0", "train-2-1"]
    c.ends("train-2-0", 3)
    await reaches(c, "Failed")
    assert "exit 3" in condition(c, "Finished")[2]


@in_scene("n1")
async def test_it_starts_smaller_than_it_may_be_and_grows_later(c: Scene) -> None:
    c.theirs("theirs", gpus=2)
    await until(lambda: len(c.state.nodes["n1"].others.devices) == 2)
    elastic(c, low=2, high=4)
    await reaches(c, "Running", replicas=2)
    assert condition(c)[2] == "2 of 2 to 4 replicas hold places, 2 run"


@in_scene("n1")
async def test_a_waiting_one_says_why(c: Scene) -> None:
    c.theirs("theirs", gpus=3)
    await until(lambda: len(c.state.nodes["n1"].others.devices) == 3)
    elastic(c)
    await reaches(c, "Pending")
    async with asyncio.timeout(5):
        await until(lambda: condition(c)[1] == "Unschedulable")
    assert "1" in condition(c)[2]
    assert c.pods_of("train") == []


@in_scene("n1")
async def test_suspending_it_lets_it_save_and_leave_until_it_is_wanted_again(c: Scene) -> None:
    elastic(c)
    await reaches(c, "Running")
    c.change(EJ, "train", {"spec": {"suspend": True}})
    await reaches(c, "Suspended", replicas=0)
    assert c.pods_of("train") == []
    c.change(EJ, "train", {"spec": {"suspend": False}})
    await reaches(c, "Running", readyReplicas=2, attempt=2)


@in_scene("n1")
async def test_one_that_is_wanted_again_before_its_replicas_have_left_goes_on_once_they_have(c: Scene) -> None:
    elastic(c)
    await reaches(c, "Running", attempt=1)
    c.slow = {"train-1-0", "train-1-1"}
    c.change(EJ, "train", {"spec": {"suspend": True}})
    await reaches(c, "Stopping")
    c.change(EJ, "train", {"spec": {"suspend": False}})
    await asyncio.sleep(0.2)
    c.slow.clear()
    await reaches(c, "Running", readyReplicas=2, attempt=2)


@in_scene("n1")
async def test_a_new_range_takes_effect_by_a_restart(c: Scene) -> None:
    elastic(c)
    await reaches(c, "Running", attempt=1, replicas=2)
    c.change(EJ, "train", {"spec": {"scaling": {"minReplicas": 3, "maxReplicas": 3}}})
    await reaches(c, "Running", readyReplicas=3, attempt=2)  # none begins in between
    assert status(c)["observedGeneration"] == 2
    assert status(c)["job"] == 1  # it is the same job


@in_scene("n1")
async def test_deleting_it_ends_its_job(c: Scene) -> None:
    elastic(c)
    await reaches(c, "Running")
    c.store.delete(c.store.kind("penstock.dev", "elasticjobs"), ("default", "train"))
    async with asyncio.timeout(5):
        await until(lambda: c.states() == {} and c.pods_of("train") == [])
    assert [row.state for row in c.disk.finished_jobs(9)] == ["cancelled"]
    assert c.store.all_of("services") == {}


@in_scene("n1")
async def test_one_that_a_person_cancels_is_over_and_does_not_come_back(c: Scene) -> None:
    elastic(c, "runs")
    elastic(c, "waits", low=4, high=4)
    await reaches(c, "Running", "runs")
    await reaches(c, "Pending", "waits", job=2)
    for job_id in (1, 2):
        c.at_work._server.cancel(job_id, "a person did")
    await reaches(c, "Cancelled", "runs")
    await reaches(c, "Cancelled", "waits")
    await asyncio.sleep(0.3)
    assert c.states() == {}


@in_scene("n1")
async def test_a_pod_or_service_of_somebody_else_is_left_alone(c: Scene) -> None:
    c.make("/services", "train", {"ports": [{"port": 80}]})
    elastic(c)
    async with asyncio.timeout(5):
        await until(lambda: "service train is there already" in condition(c)[2])
    assert c.pods_of("train") == []


@in_scene("n1")
async def test_a_template_that_is_none_is_said(c: Scene) -> None:
    spec = {**template(0)["spec"], "tolerations": "many"}
    c.make(EJ, "train", {"template": {"spec": spec}})
    async with asyncio.timeout(5):
        await until(lambda: condition(c)[1] == "InvalidTemplate")
    assert "spec.template: Expected `array`, got `str`" in condition(c)[2]
    assert (c.states(), c.pods_of("train")) == ({}, [])


def test_a_restart_of_the_server_takes_it_over_at_any_moment() -> None:
    async def work() -> None:
        async with standing("n1") as c:
            elastic(c)
            for pause_s in (0.05, 0.1, 0.15, 0.2, 0.3):
                async with c.serving():
                    await asyncio.sleep(pause_s)
            async with c.serving():
                await reaches(c, "Running", readyReplicas=2)
                c.sound()
                assert len(c.pods_of("train")) == 2
            c.all_end("train")  # while no server runs
            async with c.serving():
                await reaches(c, "Succeeded")
                assert c.states() == {}

    run(work)


@pytest.mark.parametrize(
    ("change", "attempt"),
    [
        ({}, 1),
        ({"priority": 600}, 1),
        ({"scaling": {"minReplicas": 1, "maxReplicas": 2}}, 2),
        ({"template": {"spec": {"priorityClassName": "", "activeDeadlineSeconds": 900}}}, 2),
    ],
    ids=["nothing", "other", "range", "template"],
)
def test_a_restart_restarts_only_what_has_changed_meanwhile(change: dict[str, Any], attempt: int) -> None:
    async def work() -> None:
        async with standing("n1") as c:
            elastic(c)
            async with c.serving():
                await reaches(c, "Running", readyReplicas=2)
            c.change(EJ, "train", {"spec": change})
            async with c.serving():
                await asyncio.sleep(0.5)
                await reaches(c, "Running", readyReplicas=2, attempt=attempt)
                assert c.state.jobs[1].last_attempt == attempt

    run(work)


def test_one_whose_job_ended_before_its_status_said_so_gets_no_other_job() -> None:
    async def work() -> None:
        async with standing("n1") as c:
            elastic(c)
            async with c.serving():
                await reaches(c, "Running")
                c.api.faults.append(Fault("PATCH", "elasticjobs/train/status", 503, times=1000))  # it dies before
                c.all_end("train")
                await until(lambda: c.states() == {})
            assert status(c)["phase"] != "Succeeded"
            c.api.faults.clear()
            async with c.serving():
                await reaches(c, "Succeeded")
                assert c.states() == {}

    run(work)


@pytest.mark.parametrize(
    ("name", "spec", "text"),
    [
        ("a.b", {}, "a letter first"),
        ("1a", {}, "a letter first"),
        ("a" * 53, {}, "53 characters, expected 52"),
        ("a", {"nodeName": "n1"}, "nodeName is n1, expected none"),
        ("a", {"hostname": "x" * 70_000}, "bytes, expected 65,536 at most"),
    ],
)
def test_what_no_pod_could_be_made_of_is_named(name: str, spec: Any, text: str) -> None:
    body = {"metadata": {}, "spec": {"containers": [{"name": "main", "image": "none"}], **spec}}
    made = of_elastic_job(ElasticJob(Metadata(name), ElasticJobSpec(template=body)))
    assert made.elastic is not None
    assert text in made.elastic.problem
    assert made.size == 0
