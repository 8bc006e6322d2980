"""PodDisruptionBudgets: no job is chosen to leave that they would keep half of."""

from tests.engines.kubernetes.cluster import Cluster, cluster
from tests.engines.kubernetes.helpers import run, until


def _high(c: Cluster) -> None:
    body = {"metadata": {"name": "high"}, "value": 1000}
    c.store.create(c.kind("priorityclasses", "scheduling.k8s.io"), "", body)


def _budget(c: Cluster, name: str, allowed: int | None = None) -> None:
    """Create a budget of pods with `app=x`, or let it allow so many disruptions."""
    kind = c.kind("poddisruptionbudgets", "policy")
    if allowed is None:
        spec = {"selector": {"matchLabels": {"app": "x"}}}
        c.store.create(kind, "default", {"metadata": {"name": name}, "spec": spec})
    else:
        allow = {"status": {"disruptionsAllowed": allowed}}
        c.store.update(kind, ("default", name), lambda one: {**one, **allow}, part="status")


def _protected(c: Cluster) -> dict[str, str]:
    return {job.spec.name: job.protected for job in c.controller.state.jobs.values() if job.protected}


def _evictions(c: Cluster) -> int:
    return sum("eviction" in seen.path for seen in c.api.seen)


def test_a_gang_is_not_chosen_where_a_budget_would_keep_half_of_it(monkeypatch):
    monkeypatch.setattr("penstock.sim.apiserver.kinds.EVICTION_WAIT_S", 0)

    async def work() -> None:
        async with cluster("n1") as c:
            _high(c)
            _budget(c, "b")
            _budget(c, "b", 1)
            c.gang("low", 2, gpus=2, labels={"app": "x"})
            await until(lambda: c.jobs() == [("low", "running")])
            text = "PodDisruptionBudget default/b allows 1 disruption now, and it has 2 pods of that"
            await until(lambda: _protected(c) == {"low": text})
            c.pod("urgent", gpus=4, priorityClassName="high")
            await until(lambda: text in c.says("urgent")[1])
            assert (_evictions(c), c.where("urgent", "low-0", "low-1")) == (0, ["", "n1", "n1"])
            _budget(c, "b", 2)
            await until(lambda: c.where("urgent") == ["n1"])
            assert [c.get("low-0"), c.get("low-1")] == [None, None]

    run(work)


def test_a_pod_of_two_budgets_is_never_chosen():
    async def work() -> None:
        async with cluster("n1") as c:
            for name in ("a", "b"):
                _budget(c, name)
                _budget(c, name, 5)
            _high(c)
            c.pod("low", gpus=4, labels={"app": "x"})
            await until(lambda: "more than one PodDisruptionBudget" in _protected(c).get("low", ""))
            c.pod("urgent", gpus=4, priorityClassName="high")
            await until(lambda: c.says("urgent")[0] != "")
            assert (_evictions(c), c.where("urgent", "low")) == (0, ["", "n1"])
            c.store.delete(c.kind("poddisruptionbudgets", "policy"), ("default", "a"))
            await until(lambda: c.where("urgent") == ["n1"])
            assert (_protected(c), c.get("low")) == ({}, None)

    run(work)


def test_an_eviction_waits_for_the_budget_that_another_has_used_up(monkeypatch):
    monkeypatch.setattr("penstock.engines.kubernetes.binding.EVICTION_WAIT_S", 0.02)
    monkeypatch.setattr("penstock.sim.apiserver.kinds.EVICTION_WAIT_S", 0)

    async def work() -> None:
        async with cluster("n1") as c:
            _high(c)
            _budget(c, "b")
            _budget(c, "b", 1)
            for name in ("low", "lower"):
                c.pod(name, gpus=2, labels={"app": "x"})
            await until(lambda: c.jobs() == [("low", "running"), ("lower", "running")])
            c.pod("urgent", gpus=4, priorityClassName="high")
            await until(lambda: _evictions(c) > 4)
            gone = [c.get(name) is None for name in ("low", "lower")]
            assert (c.where("urgent"), sorted(gone)) == ([""], [False, True])
            _budget(c, "b", 1)
            await until(lambda: c.where("urgent") == ["n1"])

    run(work)


def test_more_budgets_than_are_looked_at_protect_every_gang_of_their_namespace(monkeypatch):
    monkeypatch.setattr("penstock.engines.kubernetes.budgets.BUDGETS_MAX", 2)

    async def work() -> None:
        async with cluster("n1") as c:
            for name in ("a", "b", "c"):
                _budget(c, name)
            c.pod("low", gpus=4)
            text = "namespace default has 3 PodDisruptionBudgets, and 2 are looked at"
            await until(lambda: _protected(c) == {"low": text})
            assert _evictions(c) == 0

    run(work)
