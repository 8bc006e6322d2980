"""Pods of a cluster are placed by the server's decisions, and what happens to them comes back."""

import asyncio

from penstock.sim.apiserver.kinds import bind
from penstock.sim.apiserver.requests import Fault
from penstock.testing.kubernetes.server import ApiServer
from tests.engines.kubernetes.cluster import Cluster, cluster
from tests.engines.kubernetes.helpers import run, until


def test_a_pod_is_bound_runs_and_its_job_ends_with_it():
    async def work() -> None:
        async with cluster("n1", "n2") as c:
            c.pod("a", gpus=4)
            await until(lambda: c.jobs() == [("a", "running")])
            (node,) = c.where("a")
            assert node in ("n1", "n2")
            assert c.get("a")["metadata"]["annotations"] == {
                "penstock.dev/cluster": c.state.identity.cluster,
                "penstock.dev/devices": "0,1,2,3",
                "penstock.dev/replica": "1.1.0",
            }
            assert c.state.nodes[node].spec.devices[0].model == "NVIDIA-A100-SXM4-80GB"
            c.sound()
            c.ends("a")
            await until(lambda: c.jobs() == [])
            (row,) = c.disk.finished_jobs(9)
            assert (row.name, row.state, row.tenant) == ("a", "succeeded", "default")

    run(work)


def test_no_attempt_is_lost_because_an_order_comes_before_the_answer_to_its_submit():
    async def work() -> None:
        async with cluster("n1") as c:
            answer, held = c.engine._server.submit, []
            c.engine._server.submit = lambda job, reply: answer(job, lambda found: held.append((reply, found)))
            c.pod("a")
            await until(lambda: held and c.state.jobs[1].attempt is not None)
            await asyncio.sleep(0.1)
            for reply, found in held:
                reply(found)
            await until(lambda: c.jobs() == [("a", "running")])
            assert c.state.jobs[1].last_attempt == 1

    run(work)


def test_a_gang_starts_whole_or_not_at_all():
    async def work() -> None:
        async with cluster("n1", "n2") as c:
            c.pod("small", gpus=1)
            await until(lambda: c.where("small") != [""])
            c.gang("team", 2, gpus=4)
            c.pod("other", gpus=3)
            await until(lambda: c.where("other") != [""])
            assert c.where("team-0", "team-1") == ["", ""]
            assert ("team", "waiting") in c.jobs()
            c.ends("small")
            c.ends("other")
            await until(lambda: all(c.where("team-0", "team-1")))
            assert sorted(c.where("team-0", "team-1")) == ["n1", "n2"]
            ranks = [c.get(f"team-{i}")["metadata"]["annotations"]["penstock.dev/replica"] for i in (0, 1)]
            assert [rank.rpartition(".")[2] for rank in ranks] == ["0", "1"]
            c.sound()

    run(work)


def test_an_incomplete_gang_waits_for_its_pods():
    async def work() -> None:
        async with cluster("n1") as c:
            c.gang("team", 3, first=1)
            c.pod("single")
            await until(lambda: c.jobs() == [("single", "running")])
            assert c.where("team-1", "team-2") == ["", ""]
            c.pod("team-0", labels={"penstock.dev/gang": "team", "penstock.dev/gang-size": "3"})
            await until(lambda: c.jobs() == [("single", "running"), ("team", "running")])
            assert c.where("team-0", "team-1", "team-2") == ["n1"] * 3

    run(work)


def test_what_other_schedulers_placed_is_taken():
    async def work() -> None:
        async with cluster("n1") as c:
            c.pod("theirs", gpus=3, cpus="6", schedulerName="default-scheduler", nodeName="n1")
            await until(lambda: c.state.nodes["n1"].others.devices == (1, 2, 3))
            c.pod("mine", gpus=2)
            c.pod("thin", gpus=1)
            await until(lambda: c.where("thin") == ["n1"])
            assert c.where("mine") == [""]
            assert c.get("thin")["metadata"]["annotations"]["penstock.dev/devices"] == "0"
            c.delete("theirs")
            await until(lambda: c.where("mine") == ["n1"])
            c.sound()

    run(work)


def test_taints_selectors_and_affinity_are_kept():
    async def work() -> None:
        async with cluster() as c:
            c.node("spot", taints=[{"key": "spot", "effect": "NoSchedule"}], disk="ssd")
            c.node("plain", disk="hdd")
            await until(c.ready)
            c.pod("a", nodeSelector={"disk": "ssd"})
            c.pod("b", nodeSelector={"disk": "hdd"})
            await until(lambda: c.where("b") == ["plain"])
            assert c.where("a") == [""]
            tolerates = [{"key": "spot", "operator": "Exists"}]
            c.pod("c", nodeSelector={"disk": "ssd"}, tolerations=tolerates)
            named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["spot"]}]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [named]}}
            c.pod("d", affinity={"nodeAffinity": required}, tolerations=tolerates)
            await until(lambda: c.where("c", "d") == ["spot", "spot"])
            assert c.where("a") == [""]

    run(work)


def test_a_rule_that_cannot_be_decided_is_said_on_the_pod():
    async def work() -> None:
        async with cluster("n1") as c:
            c.pod("b", labels={"penstock.dev/gang": "x", "penstock.dev/gang-size": "many"})
            both = {"nvidia.com/gpu": "1", "amd.com/gpu": "1"}
            c.pod("c", containers=[{"name": "m", "image": "none", "resources": {"limits": both}}])
            await until(lambda: all(c.says(name)[0] for name in "bc"))
            assert c.says("b")[0] == "InvalidGang"
            assert "'many', expected a number from 1 to 10,000" in c.says("b")[1]
            assert c.says("c") == ("Unsupported", "resources: devices of several vendors (nvidia, amd) for one pod")
            assert c.jobs() == []

    run(work)


def test_what_the_server_refuses_is_said_on_the_pod():
    async def work() -> None:
        async with cluster("n1") as c:
            c.pod("a", gpus=9)
            await until(lambda: c.says("a")[0] == "Unschedulable")
            assert "too few devices" in c.says("a")[1]
            c.pod("b", labels={"penstock.dev/queue": "absent"})
            await until(lambda: c.says("b")[0] == "Refused")
            assert "absent" in c.says("b")[1]

    run(work)


def test_a_pod_that_no_node_could_hold_is_placed_once_one_can(monkeypatch):
    monkeypatch.setattr("penstock.engines.kubernetes.engine.AGAIN_S", 0.05)

    async def work() -> None:
        async with cluster("n1") as c:
            c.pod("a", nodeSelector={"disk": "ssd"})
            await until(lambda: c.says("a")[0] == "Unschedulable")
            c.node("n2", disk="ssd")
            await until(lambda: c.where("a") == ["n2"])
            assert c.says("a") == ("", ""), "bound"

    run(work)


def test_a_gated_pod_is_left_alone_until_its_gates_are_lifted():
    async def work() -> None:
        async with cluster("n1") as c:
            c.pod("a", schedulingGates=[{"name": "quota"}])
            c.pod("b")
            await until(lambda: c.jobs() == [("b", "running")])
            assert c.where("a") == [""]
            lifted = {"spec": {"schedulingGates": []}}
            c.store.update(
                c.kind("pods"), ("default", "a"), lambda one: {**one, "spec": {**one["spec"], **lifted["spec"]}}
            )
            await until(lambda: c.where("a") == ["n1"])

    run(work)


def test_a_pod_that_is_deleted_while_it_waits_has_no_job():
    async def work() -> None:
        async with cluster("n1") as c:
            c.pod("big", gpus=4)
            await until(lambda: c.where("big") == ["n1"])
            c.pod("late", gpus=4)
            await until(lambda: ("late", "waiting") in c.jobs())
            c.delete("late")
            await until(lambda: c.jobs() == [("big", "running")])

    run(work)


def test_a_failed_pod_is_a_failed_job_with_its_exit():
    async def work() -> None:
        async with cluster("n1") as c:
            c.pod("a")
            c.pod("b")
            await until(lambda: c.jobs() == [("a", "running"), ("b", "running")])
            c.ends("a", 3)
            c.ends("b", 137)
            await until(lambda: c.jobs() == [])
            rows = {row.name: row for row in c.disk.finished_jobs(9)}
            assert [(rows[n].state, rows[n].reason) for n in "ab"] == [("failed", "exit 3"), ("failed", "signal 9")]

    run(work)


def test_a_preempted_gang_is_evicted_and_waits_for_its_new_pods():
    async def work() -> None:
        async with cluster("n1") as c:
            high = {"metadata": {"name": "high"}, "value": 1000}
            c.store.create(c.kind("priorityclasses", "scheduling.k8s.io"), "", high)
            c.gang("low", 2, gpus=2)
            await until(lambda: ("low", "running") in c.jobs())
            c.pod("urgent", gpus=4, priorityClassName="high")
            await until(lambda: c.where("urgent") == ["n1"])
            assert [c.get("low-0"), c.get("low-1")] == [None, None]
            await until(lambda: c.jobs() == [("urgent", "running")])
            rows = c.disk.finished_jobs(9)
            assert [(row.name, row.preemptions) for row in rows] == [("low", 1)]
            c.sound()

    run(work)


def test_a_binding_whose_answer_is_lost_is_not_made_twice():
    async def work() -> None:
        async with cluster("n1", "n2") as c:
            c.api.faults.append(Fault("POST", "binding", 504, carried_out=True))
            c.pod("a")
            await until(lambda: c.jobs() == [("a", "running")])
            assert sum("binding" in seen.path for seen in c.api.seen) == 1

    run(work)


def test_a_binding_that_the_server_refuses_for_a_while_is_tried_again():
    async def work() -> None:
        async with cluster("n1") as c:
            c.api.faults += [
                Fault("POST", "binding", 503),
                Fault("POST", "binding", 429),
                Fault("POST", "binding", 409),
            ]
            c.pod("a")
            await until(lambda: c.jobs() == [("a", "running")])

    run(work)


def test_a_pod_that_somebody_else_bound_meanwhile_is_theirs(monkeypatch):
    def stolen(store, pods, namespace, binding):
        other = "n2" if binding["target"]["name"] == "n1" else "n1"
        bind(store, pods, namespace, {"metadata": {"name": binding["metadata"]["name"]}, "target": {"name": other}})
        bind(store, pods, namespace, binding)

    monkeypatch.setattr("penstock.sim.apiserver.requests.bind", stolen)

    async def work() -> None:
        async with cluster("n1", "n2") as c:
            c.pod("a")
            await until(lambda: any(node.others.devices for node in c.state.nodes.values()))
            (node,) = c.where("a")
            assert c.state.nodes[node].others.devices == (3,), "it counts as a pod of somebody else"
            c.delete("a")
            await until(lambda: c.jobs() == [])

    run(work)


def test_a_rank_that_cannot_be_bound_takes_its_gang_back():
    async def work() -> None:
        async with cluster("n1", "n2") as c:
            c.api.faults.append(Fault("POST", "team-1/binding", 422))
            c.gang("team", 2, gpus=4)
            survivor = c.get("team-1")["metadata"]["uid"]
            await until(lambda: c.get("team-0") is None or all(c.where("team-0", "team-1")))
            assert c.get("team-0") is None, "bound, and evicted again with its gang"
            await until(lambda: ("team", "waiting") in c.jobs() and c.state.jobs[1].hold is not None)
            c.pod("team-0", gpus=4, labels={"penstock.dev/gang": "team", "penstock.dev/gang-size": "2"})
            await until(lambda: ("team", "running") in c.jobs())
            assert all(c.where("team-0", "team-1"))
            assert c.state.jobs[1].id == 1, "it kept its place"
            assert c.get("team-1")["metadata"]["uid"] == survivor, "nothing was evicted that could stay"
            assert not any(node.strikes for node in c.state.nodes.values())

    run(work)


def test_a_node_that_is_gone_takes_its_pods_along_and_a_new_one_is_used():
    async def work() -> None:
        async with cluster("n1") as c:
            c.pod("a", gpus=4)
            await until(lambda: c.jobs() == [("a", "running")])
            c.store.delete(c.kind("nodes"), ("", "n1"))
            await until(lambda: c.state.nodes["n1"].state == "lost")
            c.delete("a")
            c.node("n2")
            c.pod("b", gpus=4)
            await until(lambda: c.where("b") == ["n2"])

    run(work)


def test_a_restart_finds_what_runs_and_what_waits():
    async def work() -> None:
        async with ApiServer() as api:
            c = Cluster(api)
            c.node("n1")
            kubelets = asyncio.create_task(c.kubelets())
            async with c.serving():
                c.gang("team", 2, gpus=2)
                await until(lambda: ("team", "running") in c.jobs())
                c.pod("late", gpus=4)
                await until(lambda: ("late", "waiting") in c.jobs())
            c.ends("team-0")
            async with c.serving():
                assert c.jobs() == [("late", "waiting"), ("team", "running")]
                c.ends("team-1")
                await until(lambda: c.where("late") == ["n1"])
                await until(lambda: c.jobs() == [("late", "running")])
                assert [row.state for row in c.disk.finished_jobs(9)] == ["succeeded"]
                assert sum("binding" in seen.path for seen in api.seen) == 3
            kubelets.cancel()

    run(work)


def test_a_pod_that_claims_to_be_a_replica_of_another_gang_is_somebody_elses():
    async def work() -> None:
        async with cluster("n1", "n2") as c:
            c.pod("honest")
            await until(lambda: c.jobs() == [("honest", "running")])
            (node,) = c.where("honest")
            claims = {"penstock.dev/replica": "1.1.0"}
            box = [{"name": "main", "image": "none", "resources": {"limits": {"cpu": "1"}}}]
            for name, kind in (("forged", "penstock"), ("other", "default-scheduler")):
                spec = {"schedulerName": kind, "nodeName": node, "containers": box}
                meta = {"name": name, "annotations": claims}
                c.store.create(c.kind("pods"), "default", {"metadata": meta, "spec": spec})
            await until(lambda: c.state.nodes[node].others.host.cpu_milli == 2000)
            c.ends("forged", 1)
            c.delete("other")
            await until(lambda: c.state.nodes[node].others.host.cpu_milli == 0)
            assert c.jobs() == [("honest", "running")]
            assert c.where("honest") == [node]

    run(work)


def test_a_pod_that_is_made_anew_with_another_ask_is_another_job():
    async def work() -> None:
        async with cluster("n1") as c:
            c.pod("first", gpus=4)
            await until(lambda: c.jobs() == [("first", "running")])
            c.pod("late", gpus=1)
            await until(lambda: ("late", "waiting") in c.jobs())
            c.delete("late")
            c.pod("late", gpus=3)
            c.ends("first")
            await until(lambda: c.where("late") == ["n1"])
            await until(lambda: c.jobs() == [("late", "running")])
            assert c.get("late")["metadata"]["annotations"]["penstock.dev/devices"].count(",") == 2, "three of them"
            c.sound()

    run(work)


def test_pods_that_were_deleted_while_no_server_ran_have_no_job(monkeypatch):
    monkeypatch.setattr("penstock.engines.kubernetes.placing.EARLY_S", 0.1)

    async def work() -> None:
        async with ApiServer() as api:
            c = Cluster(api)
            c.node("n1")
            kubelets = asyncio.create_task(c.kubelets())
            async with c.serving():
                c.pod("first", gpus=4)
                await until(lambda: c.jobs() == [("first", "running")])
                c.pod("late", gpus=4)
                await until(lambda: ("late", "waiting") in c.jobs())
            c.delete("first")
            c.delete("late")
            async with c.serving():
                c.pod("next", gpus=4)
                await until(lambda: c.jobs() == [("next", "running")])
            kubelets.cancel()

    run(work)
