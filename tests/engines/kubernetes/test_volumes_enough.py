"""Gangs that claim more volumes than are there."""

import msgspec
import pytest

from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.volumes.enough import Enough
from tests.engines.kubernetes.helpers import run
from tests.engines.kubernetes.test_volumes import disk, named, shared, stock, versioned

TEAM = [msgspec.convert({"metadata": {"name": f"team-{i}", "namespace": "ns"}}, Pod) for i in range(3)]


def enough(there, *sizes):
    """Return the check of a gang whose pods claim these sizes, and what it says is to be looked at again."""
    claims = {pod.key: [named(f"data-{i}", size)] for i, (pod, size) in enumerate(zip(TEAM, sizes, strict=False))}
    looked = []
    team = [(pod, "n1") for pod in TEAM[: len(sizes)]]
    return Enough(there, lambda pod: claims[pod.key], lambda _: team, looked.append), looked


CLASS = "volumes of class local, and"
TOO_FEW = [
    ("enough", ("10Gi", "10Gi", "20Gi"), ""),
    ("too few of the large ones", ("20Gi", "20Gi", "5Gi"), f"its gang claims 3 {CLASS} 2 of these are there"),
    ("none that is large enough", ("100Gi",), f"its gang claims 1 {CLASS} 0 of these are there"),
    ("no claims", (), ""),
]


@pytest.mark.parametrize(("sizes", "text"), [row[1:] for row in TOO_FEW], ids=[row[0] for row in TOO_FEW])
def test_whether_there_are_volumes_for_a_whole_gang(sizes, text):
    there = stock(shared("a"), shared("b"), disk("large", "n1", "20Gi"), shared("had", ref={"name": "x"}))

    async def work():
        check, _ = enough(there, *sizes)
        assert [check.look(pod) for pod in TEAM[: len(sizes)]] == [text] * len(sizes)

    run(work)


def test_a_gang_is_looked_at_once_for_all_its_pods():
    there, asked = stock(shared("a"), shared("b")), []
    claims = {pod.key: [named(pod.metadata.name)] for pod in TEAM}

    def unbound(pod):
        asked.append(pod.key)
        return claims[pod.key]

    check = Enough(there, unbound, lambda _: [(pod, "n1") for pod in TEAM[:2]], asked.append)
    assert [check.look(pod) for pod in TEAM[:2]] == ["", ""]
    assert asked == ["ns/team-0", "ns/team-1"]


@pytest.mark.parametrize("change", ["a volume comes", "a volume is to be had again", "a pod is gone", "time passes"])
def test_a_gang_that_lacks_volumes_waits_until_that_may_have_changed(change):
    there = stock(shared("a"), shared("b"))
    other = named("other")
    there.assume(other.key, there._view.volume("a"))

    async def work():
        check, looked = enough(there, "10Gi", "10Gi")
        assert check.look(TEAM[0])
        assert [bool(check.why_not(pod)) for pod in TEAM] == [True, True, False]
        assert looked == ["ns/team-0", "ns/team-1"]
        match change:
            case "a volume comes":
                there._view.volumes.wrote(versioned(shared("c"), 9))
            case "a volume is to be had again":
                there.release(other.key)
            case "a pod is gone":
                check.gone(TEAM[1].key)
            case _:
                (short, _) = check._short.values()
                short.ends_s = 0.0
        assert not check.why_not(TEAM[0])
        assert not check.why_not(TEAM[1])
        assert looked == ["ns/team-0", "ns/team-1"] * 2

    run(work)
