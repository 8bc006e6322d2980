"""Objects that make pods: started as a whole by their queue label, suspended when they have to make room."""

import asyncio
from typing import Any

import pytest

from penstock.sim.apiserver.requests import Fault
from tests.engines.kubernetes.helpers import run, until
from tests.engines.kubernetes.scenes import (
    HIGH,
    JOB_SETS,
    QUEUE,
    RAY_CLUSTERS,
    RAY_JOBS,
    TRAIN_JOBS,
    Scene,
    in_scene,
    scene,
    template,
)


async def runs(c: Scene, name: str, size: int) -> list[str]:
    """Wait until all pods of an object run, and return where."""
    await until(lambda: len(c.nodes_of(name)) == size and all(c.nodes_of(name)) and c.states()[name] == "running")
    return c.nodes_of(name)


@in_scene("n1", "n2")
async def test_a_job_with_a_queue_runs_as_a_whole(c: Scene) -> None:
    """AI conformance, gang scheduling, positive case: a plain Job with given labels."""
    c.job("train", 4, gpus=2)
    assert sorted(await runs(c, "train", 4)) == ["n1", "n1", "n2", "n2"]
    assert not c.suspended("train")
    c.all_end("train")
    await until(lambda: c.states() == {})
    assert [row.state for row in c.disk.finished_jobs(9)] == ["succeeded"]


@pytest.mark.parametrize(("suspend", "size"), [(True, 1000), (False, 20)])
def test_a_job_that_does_not_fit_as_a_whole_has_no_pods(suspend: bool, size: int) -> None:
    """AI conformance, gang scheduling, negative case: it stays suspended, or its status has no active pods."""

    async def work() -> None:
        async with scene("n1", "n2") as c:
            c.job("giant", size, suspend=suspend)
            c.job("small", 8)
            await runs(c, "small", 8)
            await until(lambda: c.suspended("giant") and not c.pods_of("giant"))
            assert not c.store.all_of("jobs")["default", "giant"]["status"].get("active")

    run(work)


@in_scene("n1")
async def test_a_job_waits_suspended_while_others_hold_its_room(c: Scene) -> None:
    """KEP-2804, kueue e2e: it has no pods until there is room for all of them."""
    c.job("first", 3)
    await runs(c, "first", 3)
    c.job("second", 2)
    await c.explained("second")
    c.pod("single")
    await until(lambda: c.where("single") == ["n1"])
    assert (c.suspended("second"), c.pods_of("second")) == (True, [])
    c.all_end("first")
    await runs(c, "second", 2)


@in_scene("n1")
async def test_a_job_with_more_completions_than_pods_at_a_time_goes_on_in_its_places(c: Scene) -> None:
    """k8s Jobs: 2 at a time until 4 have succeeded; the place of one that has succeeded is kept for the next."""
    c.job("train", 2, gpus=2, completions=4)
    await runs(c, "train", 2)
    c.job("other", 1, gpus=2)
    await c.explained("other")
    c.all_end("train")
    await until(lambda: c.store.all_of("jobs")["default", "train"]["status"]["succeeded"] == 2)
    assert await runs(c, "train", 2) == ["n1", "n1"]
    assert c.suspended("other")
    c.all_end("train")
    await runs(c, "other", 1)
    assert [row.name for row in c.disk.finished_jobs(9)] == ["train"]


@in_scene("n1")
async def test_a_pod_that_its_job_makes_anew_takes_the_place_of_the_one_that_failed(c: Scene) -> None:
    """k8s Jobs (backoffLimit): nobody else gets the devices between the two."""
    c.job("train", 2, gpus=2)
    await runs(c, "train", 2)
    c.pod("eager", gpus=2)
    failed = c.pods_of("train")[1]["metadata"]["name"]
    c.ends(failed, 1)
    await until(lambda: c.nodes_of("train") == ["n1", "n1"] and c.get(failed)["status"]["phase"] == "Failed")
    assert (c.where("eager"), c.states()["train"], c.state.jobs[1].last_attempt) == ([""], "running", 1)


@in_scene("n1")
async def test_a_job_that_failed_for_good_holds_no_places(c: Scene) -> None:
    """kueue#13717: indexes that had failed went on to hold quota."""
    c.job("train", 2, gpus=2, backoffLimit=0)
    await runs(c, "train", 2)
    c.job("next", 1, gpus=4)
    c.all_end("train", 1)
    await runs(c, "next", 1)
    assert list(c.states()) == ["next"]


@in_scene("n1")
async def test_a_job_that_is_preempted_is_suspended_and_starts_again(c: Scene) -> None:
    """kueue preemption_test: suspended, its pods say why, and it comes back once there is room."""
    c.priority()
    c.job("low", 2, gpus=2)
    await runs(c, "low", 2)
    (pod, _) = c.pods_of("low")
    c.slow = {one["metadata"]["name"] for one in c.pods_of("low")}
    c.pod("urgent", gpus=4, priorityClassName=HIGH)
    await until(lambda: c.suspended("low"))
    conditions = c.get(pod["metadata"]["name"])["status"]["conditions"]
    (found,) = [one for one in conditions if one["type"] == "DisruptionTarget"]
    assert (found["status"], found["reason"]) == ("True", "PreemptionByScheduler")
    assert "(default/pod/urgent)" in found["message"], "for whom"
    assert found["lastTransitionTime"], "without a time it would count as long over"
    c.slow.clear()
    await until(lambda: c.where("urgent") == ["n1"])
    assert (c.pods_of("low"), c.states()["low"]) == ([], "waiting")
    c.ends("urgent")
    await runs(c, "low", 2)
    assert not c.suspended("low")


def knowing(part: Any, job_id: int, above: str = "") -> list[str]:
    """Return the dictionaries of an engine, or of a part of it, that have an entry of a job."""
    found = []
    for name, value in vars(part).items():
        path = f"{above}{name}"
        if isinstance(value, dict) and any(type(key) is int and key == job_id for key in value):
            found.append(path)
        elif type(value).__module__.startswith("penstock.engines.kubernetes") and hasattr(value, "__dict__"):
            found += knowing(value, job_id, f"{path}.") if path.count(".") < 4 else []
    return found


@in_scene("n1")
async def test_a_job_that_is_deleted_while_it_waits_again_is_forgotten(c: Scene) -> None:
    c.priority()
    c.job("low", 2, gpus=2)
    await runs(c, "low", 2)
    (job_id,) = c.state.jobs
    assert knowing(c.at_work, job_id)
    c.pod("urgent", gpus=4, priorityClassName=HIGH)
    await until(lambda: c.where("urgent") == ["n1"])
    assert c.states()["low"] == "waiting"
    c.store.delete(c.store.kind("batch", "jobs"), ("default", "low"))
    await until(lambda: c.states() == {"urgent": "running"})
    async with asyncio.timeout(5):  # the explanations of jobs that wait are swept with each look
        await until(lambda: knowing(c.at_work, job_id) == [])


@in_scene("n1")
async def test_a_job_that_waits_may_be_made_smaller(c: Scene) -> None:
    """KEP-2926 and elastic Indexed Jobs: parallelism and completions change together while it is suspended."""
    c.theirs("theirs", gpus=2)
    c.job("train", 4)
    await c.explained("train")
    c.change("batch/jobs", "train", {"spec": {"parallelism": 2, "completions": 2}})
    await runs(c, "train", 2)


@in_scene("n1", "n2")
async def test_a_job_that_waits_may_be_sent_elsewhere(c: Scene) -> None:
    """KEP-2926: the node selector of a suspended Job may change; it is planned anew."""
    c.theirs("theirs", gpus=4, node="n1")
    c.job("train", 1, pods=template(nodeSelector={"kubernetes.io/hostname": "n1"}))
    await c.explained("train")
    other = {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "n2"}}}}
    c.change("batch/jobs", "train", {"spec": other})
    assert await runs(c, "train", 1) == ["n2"]


@in_scene("n1")
async def test_a_job_that_is_deleted_while_it_waits_is_forgotten(c: Scene) -> None:
    c.theirs("theirs", gpus=4)
    c.job("train", 2)
    await c.explained("train")
    c.store.delete(c.kind("jobs", "batch"), ("default", "train"))
    await until(lambda: c.states() == {})
    c.delete("theirs")
    c.job("next", 4)
    await runs(c, "next", 4)


@in_scene("n1")
async def test_a_job_that_is_deleted_while_it_runs_gives_its_room_back(c: Scene) -> None:
    c.job("train", 4)
    await runs(c, "train", 4)
    c.job("next", 4)
    c.store.delete(c.kind("jobs", "batch"), ("default", "train"))
    await runs(c, "next", 4)


@in_scene("n1")
async def test_pods_of_a_job_without_a_queue_start_one_by_one(c: Scene) -> None:
    """A Job that opted in by its scheduler's name alone is what it is with kube-scheduler."""
    c.job("plain", 4, gpus=2, labels={}, suspend=False)
    await until(lambda: c.nodes_of("plain").count("n1") == 2)
    assert c.nodes_of("plain").count("") == 2
    for pod in c.pods_of("plain"):
        if pod["spec"].get("nodeName"):
            c.ends(pod["metadata"]["name"])
    await until(lambda: c.nodes_of("plain") == ["n1", "n1"])


@in_scene("n1")
async def test_a_suspended_job_without_a_queue_stays_as_it_is(c: Scene) -> None:
    """Who suspended it lets it go again; so do Kueue's Jobs stay Kueue's."""
    c.job("asleep", 1, labels={})
    c.job("kueues", 1, labels={"kueue.x-k8s.io/queue-name": "default"})
    c.job("train", 1)
    await runs(c, "train", 1)
    assert (c.suspended("asleep"), c.suspended("kueues")) == (True, True)
    assert list(c.states()) == ["train"]


@in_scene("n1")
async def test_a_job_whose_first_patches_fail_is_started_all_the_same(c: Scene) -> None:
    """Lost and refused answers of the API server are tried again, and one start is one attempt."""
    c.api.faults += [Fault("PATCH", "jobs/train", 503), Fault("PATCH", "jobs/train", 504, carried_out=True)]
    c.job("train", 2)
    await runs(c, "train", 2)
    assert c.state.jobs[1].last_attempt == 1


@in_scene("n1", "n2")
async def test_a_job_heals_when_one_of_its_nodes_is_gone(c: Scene) -> None:
    """volcano#5805: a gang below its size after a node died stayed there for ever."""
    c.job("train", 2, gpus=4)
    assert sorted(await runs(c, "train", 2)) == ["n1", "n2"]
    c.store.delete(c.kind("nodes"), ("", "n2"))
    for pod in c.pods_of("train"):
        if pod["spec"]["nodeName"] == "n2":
            c.delete(pod["metadata"]["name"])
    c.node("n3")
    await until(lambda: sorted(c.nodes_of("train")) == ["n1", "n3"] and c.states() == {"train": "running"})


def job_set(c: Scene, name: str = "set", **fields: Any) -> Any:
    """Create a JobSet of one leader and two pairs of workers."""
    leader = {"name": "leader", "replicas": 1, "template": {"spec": {"parallelism": 1, "template": template(0)}}}
    workers = {"name": "worker", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": template(1)}}}
    spec = {"suspend": True, "replicatedJobs": [leader, workers]}
    return c.make(JOB_SETS, name, spec, **{"labels": QUEUE, **fields})


@in_scene("n1", kinds=(JOB_SETS,))
async def test_a_job_set_starts_with_all_its_parts(c: Scene) -> None:
    """kueue e2e jobset_test: the leader does not start without its workers."""
    c.theirs("theirs", gpus=1)
    job_set(c)
    await c.explained("set")
    assert (c.suspended("set", "jobsets"), c.pods_of("set")) == (True, [])
    c.delete("theirs")
    assert await runs(c, "set", 5) == ["n1"] * 5
    c.status("jobsets", "set", terminalState="Completed")
    c.all_end("set")
    await until(lambda: c.states() == {})
    assert [row.state for row in c.disk.finished_jobs(9)] == ["succeeded"]


@in_scene("n1", kinds=(JOB_SETS, TRAIN_JOBS))
async def test_a_train_job_is_started_itself_and_not_its_job_set(c: Scene) -> None:
    """kueue e2e trainjob_test; Trainer: its controller keeps the JobSet suspended as long as it is."""
    owner = c.make(TRAIN_JOBS, "tune", {"suspend": True}, labels=QUEUE)
    job_set(c, "tune", labels={}, owner=owner)
    await until(lambda: not c.suspended("tune", "trainjobs"))
    assert c.suspended("tune", "jobsets"), "left to its controller"
    assert c.requests("PATCH", "jobsets") == 0
    c.change(JOB_SETS, "tune", {"spec": {"suspend": False}})
    assert await runs(c, "tune", 5) == ["n1"] * 5


def ray_spec(workers: int) -> dict[str, Any]:
    group = {"groupName": "gpu", "replicas": workers, "numOfHosts": 2, "template": template(1)}
    return {"headGroupSpec": {"template": template(0)}, "workerGroupSpecs": [group]}


@in_scene("n1", kinds=(RAY_CLUSTERS, RAY_JOBS))
async def test_a_ray_cluster_starts_with_its_head_and_its_workers(c: Scene) -> None:
    """kueue e2e kuberay_test: groups of several hosts count with all of them."""
    c.theirs("theirs", gpus=1)
    c.make(RAY_CLUSTERS, "ray", {"suspend": True, **ray_spec(2)}, labels=QUEUE)
    await c.explained("ray")
    assert (c.suspended("ray", "rayclusters"), c.pods_of("ray")) == (True, [])
    c.delete("theirs")
    assert await runs(c, "ray", 5) == ["n1"] * 5
    asked = [c.state.jobs[1].placed.each_of(rank).devices for rank in range(5)]
    assert [one.count if one is not None else 0 for one in asked] == [0, 1, 1, 1, 1]


@in_scene("n1", kinds=(RAY_CLUSTERS, RAY_JOBS))
async def test_a_ray_job_is_started_itself_and_not_its_cluster(c: Scene) -> None:
    """kueue e2e kuberay_test: a RayJob makes its cluster once it is not suspended."""
    job = c.make(RAY_JOBS, "batch", {"suspend": True, "rayClusterSpec": ray_spec(1)}, labels=QUEUE)
    await until(lambda: not c.suspended("batch", "rayjobs"))
    c.make(RAY_CLUSTERS, "batch-raycluster", ray_spec(1), owner=job)
    await until(lambda: c.nodes_of("batch-raycluster") == ["n1"] * 3)
    await until(lambda: c.states() == {"batch": "running"})
    assert c.requests("PATCH", "rayclusters") == 0


@in_scene("n1")
async def test_a_group_of_a_leader_worker_set_starts_together_and_each_for_itself(c: Scene) -> None:
    """LWS PR#982, kueue e2e leaderworkerset_test: one gang for each replica of the set."""
    for index in ("0", "1"):
        for worker in range(2):
            name = f"serve-{index}" if not worker else f"serve-{index}-{worker}"
            labels = {"leaderworkerset.sigs.k8s.io/name": "serve", "leaderworkerset.sigs.k8s.io/group-index": index}
            body = {"schedulerName": "penstock", "containers": template(2)["spec"]["containers"]}
            c.make("/pods", name, body, labels=labels, annotations={"leaderworkerset.sigs.k8s.io/size": "2"})
    await until(lambda: any(c.where("serve-0", "serve-1")))
    first, second = sorted(("serve-0", "serve-1"), key=lambda name: c.where(name) == [""])
    await until(lambda: c.where(first, f"{first}-1") == ["n1", "n1"])
    await c.waits(second, f"{second}-1")
    assert sorted(c.states()) == ["serve-0", "serve-1"]
