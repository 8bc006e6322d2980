"""Which devices claims get: a table of cases, many of them those that Kubernetes' own allocator is tested by."""

import msgspec
import pytest

from penstock.engines.kubernetes.devices import allocator
from penstock.engines.kubernetes.devices.allocator import Ask
from penstock.engines.kubernetes.devices.pools import DeviceId
from penstock.engines.kubernetes.objects.devices import ClaimSpec, DeviceTaintRule
from tests.engines.kubernetes.devices_made import (
    DRIVER,
    claim_of,
    class_of,
    cluster_of,
    dev,
    different,
    found,
    had,
    req,
    same,
    short,
    slice_of,
    taint,
)

D1, D2, D3, D4 = (dev(f"d{number}") for number in (1, 2, 3, 4))
SMALL, LARGE = dev("small", memory="1Gi"), dev("large", memory="2Gi")
LEAST = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("{}")) >= 0'
ONE, TWO = LEAST.format("1Gi"), LEAST.format("2Gi")
BOTH = [class_of(), class_of("nic", driver="nic.example.com")]
NIC = slice_of(D1, driver="nic.example.com", pool="p2")
ALL = req("r", all=True)
ADMIN = {"adminAccess": True}
TOLERANT = {"tolerations": [{"key": "ill", "operator": "Exists", "effect": "NoSchedule"}]}
GPU = slice_of(counters={"gpu/memory": "8Gi"}, of=2, name="counters")


def parts(*sizes, **more):
    """Return slices with parts of one GPU of 8 Gi, a counter set in a slice of its own."""
    devices = [dev(f"d{i}", memory=size, counters={"gpu/memory": size}, **more) for i, size in enumerate(sizes, 1)]
    return [slice_of(*devices, of=2), GPU]


def shares(*sizes, **more):
    """Return a slice of devices that several claims may have parts of."""
    return [slice_of(*(dev(f"d{i}", memory=s, allowMultipleAllocations=True, **more) for i, s in enumerate(sizes, 1)))]


def ranged(low="2", high="4", step="2", size="4"):
    policy = {"default": low, "validRange": {"min": low, "max": high, "step": step}}
    capacity = {"memory": {"value": size, "requestPolicy": policy}}
    return [slice_of(dev("d1", capacity=capacity, allowMultipleAllocations=True))]


def valued(default, *values, size="4"):
    policy = {"default": default, "validValues": list(values)}
    capacity = {"memory": {"value": size, "requestPolicy": policy}}
    return [slice_of(dev("d1", capacity=capacity, allowMultipleAllocations=True))]


def takes(number, name="r", **more):
    return req(name, takes={"memory": number}, **more)


CASES = {
    # Whole devices.
    "one device": ([claim_of(req())], [slice_of(D1)], ["r=d1"]),
    "none of another node": ([claim_of(req())], [slice_of(D1, on="n2")], None),
    "none of another driver": ([claim_of(req())], [slice_of(D1, driver="nic.example.com")], None),
    "no slices": ([claim_of(req())], [], None),
    "a small and a large one": ([claim_of(req("a", 1, ONE), req("b", 1, TWO))], [slice_of(SMALL, LARGE)],
                                ["a=small b=large"]),
    "a wrong first choice of a request is undone": ([claim_of(req("a", 1, ONE), req("b", 1, TWO))],
                                                    [slice_of(LARGE, SMALL)], ["a=small b=large"]),
    "a wrong first choice of a claim is undone": ([claim_of(req("a", 1, ONE)), claim_of(req("b", 1, TWO))],
                                                  [slice_of(LARGE, SMALL)], ["a=small", "b=large"]),
    "devices of two pools": ([claim_of(req("r", 2))], [slice_of(D1), slice_of(D1, pool="p2")], ["r=d1 r=p2/d1"]),
    "devices of two slices of a pool": ([claim_of(req("r", 2))], [slice_of(D1, of=2), slice_of(D2, of=2, name="z")],
                                        ["r=d1 r=d2"]),
    "not enough for two claims": ([claim_of(req()), claim_of(req())], [slice_of(D1)], None),
    "no such class": ([claim_of(req(of="other"))], [slice_of(D1)], None),
    "no class": ([claim_of(req(of=""))], [slice_of(D1)], None),
    "several drivers": ([claim_of(req("a"), req("b", of="nic"))], [slice_of(D1), NIC], ["a=d1 b=p2/d1"]),
    "32 devices for a claim": ([claim_of(req("r", 32))], [slice_of(*(dev(f"d{i:02}") for i in range(40)))],
                               [" ".join(f"r=d{i:02}" for i in range(32))]),
    "33 devices are too many": ([claim_of(req("r", 33))], [slice_of(*(dev(f"d{i:02}") for i in range(40)))], None),
    "33 in two requests are too many": ([claim_of(req("a", 32), req("b", 1))],
                                        [slice_of(*(dev(f"d{i:02}") for i in range(40)))], None),
    "an unknown mode": ([claim_of(req(allocationMode="Some"))], [slice_of(D1)], None),
    "an unknown kind of selector": ([claim_of(req(selectors=[{}]))], [slice_of(D1)], None),
    "an unknown kind of constraint": ([claim_of(req(), constraints=[{}])], [slice_of(D1)], None),
    "an unknown field aborts, it is no mismatch": ([claim_of(req("r", 1,
        'device.attributes["gpu.example.com"].a == 1'))],
                                                   [slice_of(D1, dev("d2", a=1))], None),
    # Pools.
    "an older generation does not count": ([claim_of(req())], [slice_of(D1, name="a"),
                                           slice_of(D2, name="b", generation=2)], ["r=d2"]),
    "a newer generation that is not whole yet": ([claim_of(req())], [slice_of(D1, name="a"),
                                                 slice_of(D2, name="b", generation=2, of=2)], None),
    "a pool of which a slice is missing": ([claim_of(req())], [slice_of(D1, of=2)], None),
    "another pool while one is not whole": ([claim_of(req())], [slice_of(D1, of=2), slice_of(D1, pool="p2")],
                                            ["r=p2/d1"]),
    "a pool with two devices of a name": ([claim_of(req())], [slice_of(D1, of=2), slice_of(D1, of=2, name="b")], None),
    "another pool while one is broken": ([claim_of(req())], [slice_of(D1, D1), slice_of(D1, pool="p2")], ["r=p2/d1"]),
    "slices of a pool on several nodes": ([claim_of(req())], [slice_of(D1, of=2),
                                          slice_of(D2, on="n2", of=2, name="b")], ["r=d1"]),
    "the pool's slice of this node is stale": ([claim_of(req())], [slice_of(D1, of=2),
                                               slice_of(D2, on="n2", name="b", generation=2, of=1)], None),
    # All devices.
    "all devices: one": ([claim_of(ALL)], [slice_of(D1)], ["r=d1"]),
    "all devices of several pools": ([claim_of(ALL)], [slice_of(D1), slice_of(D1, pool="p2")], ["r=d1 r=p2/d1"]),
    "all devices, and another one": ([claim_of(ALL), claim_of(req(of="nic"))], [slice_of(D1, D2), NIC],
                                     ["r=d1 r=d2", "r=p2/d1"]),
    "all devices, and one of them": ([claim_of(req()), claim_of(ALL)], [slice_of(D1)], None),
    "all devices of none": ([claim_of(ALL)], [slice_of()], None),
    "all devices, one of which is taken": ([claim_of(ALL)], [slice_of(D1, D2)], None, [had("d1")]),
    "all devices, and a pool is not whole": ([claim_of(ALL)], [slice_of(D1), slice_of(D1, pool="p2", of=2)], None),
    "all devices, one of which is tainted": ([claim_of(ALL)], [slice_of(D1, dev("d2", taints=[taint()]))], None),
    "all devices with one value": ([claim_of(ALL, constraints=[same("numa")])],
                                   [slice_of(dev("d1", numa=0), dev("d2", numa=1))], None),
    "all parts of a GPU that has room for them": ([claim_of(ALL)], parts("4Gi"), ["r=d1"]),
    # Admin access.
    "admin access to a taken device": ([claim_of(req("r", 2, **ADMIN))], [slice_of(D1, D2)], ["r=d1 r=d2"],
                                       [had("d1")]),
    "admin access to all devices": ([claim_of(req("r", all=True, **ADMIN))], [slice_of(D1, D2)], ["r=d1 r=d2"],
                                    [had("d1")]),
    "one device for two claims of admins": ([claim_of(req(**ADMIN))] * 2, [slice_of(D1, D2)], ["r=d1", "r=d1"]),
    "a device twice in one claim of an admin": ([claim_of(req("a", **ADMIN), req("b", all=True, **ADMIN))],
                                                [slice_of(D1, D2)], None),
    "an admin beside a claim that takes the device": ([claim_of(req()), claim_of(req(**ADMIN))], [slice_of(D1)],
                                                      ["r=d1", "r=d1"]),
    # Devices of several nodes.
    "a device for all nodes": ([claim_of(req())], [slice_of(D1, on=True)], ["r=d1"]),
    "a device for nodes with a label": ([claim_of(req())], [slice_of(D1, on={"region": "west"})], ["r=d1"]),
    "a device for nodes with another label": ([claim_of(req())], [slice_of(D1, on={"region": "east"})], None),
    "a device that says its nodes itself": ([claim_of(req())],
                                            [slice_of(dev("d1", on="n2"), dev("d2", on="n1"), on=None)], ["r=d2"]),
    "several devices that say their nodes": ([claim_of(req("r", 2))], [slice_of(
        dev("d1", on={"region": "west"}), dev("d2", on={"planet": "earth"}), on=None)], ["r=d1 r=d2"]),
    # Constraints.
    "devices with one value": ([claim_of(req("r", 2), constraints=[same("numa")])],
                               [slice_of(dev("d1", numa=0), dev("d2", numa=1), dev("d3", numa=1))], ["r=d2 r=d3"]),
    "no devices with one value": ([claim_of(req("r", 2), constraints=[same("numa")])],
                                  [slice_of(dev("d1", numa=0), dev("d2", numa=1))], None),
    "a value that no device has": ([claim_of(req("r", 2), constraints=[same("numa")])], [slice_of(D1, D2)], None),
    "texts differ": ([claim_of(req("r", 2), constraints=[same("model")])],
                     [slice_of(dev("d1", model="a"), dev("d2", model="b"))], None),
    "versions differ": ([claim_of(req("r", 2), constraints=[same("driver")])],
                        [slice_of(dev("d1", driver="v:1.0.0"), dev("d2", driver="v:1.0.1"))], None),
    "truths differ": ([claim_of(req("r", 2), constraints=[same("ecc")])],
                      [slice_of(dev("d1", ecc=True), dev("d2", ecc=False))], None),
    "a constraint for some requests": ([claim_of(req("a"), req("b"), req("c"), constraints=[same("numa", "a", "c")])],
                                       [slice_of(dev("d1", numa=0), dev("d2", numa=1), dev("d3", numa=0))],
                                       ["a=d1 b=d2 c=d3"]),
    "a constraint undoes an earlier request": ([claim_of(req("a"), req("b", 2), constraints=[same("numa")])], [slice_of(
        dev("d1", numa=0), dev("d2", numa=1), dev("d3", numa=1), dev("d4", numa=1))], ["a=d2 b=d3 b=d4"]),
    "an attribute of another domain": ([claim_of(req("r", 2), constraints=[same("root", driver="pci.example.com")])],
        [slice_of(dev("d1", **{"pci.example.com/root": "a"}), dev("d2", **{"pci.example.com/root": "b"}),
                  dev("d3", **{"pci.example.com/root": "a"}))], ["r=d1 r=d3"]),
    "lists with a value in common": ([claim_of(req("r", 2), constraints=[same("links")])],
                                     [slice_of(dev("d1", links=["a", "b"]), dev("d2", links=["b", "c"]))],
                                         ["r=d1 r=d2"]),
    "lists of which no value is in all": ([claim_of(req("r", 3), constraints=[same("links")])], [slice_of(
        dev("d1", links=["a", "b"]), dev("d2", links=["b", "c"]), dev("d3", links=["a", "c"]))], None),
    "a list and a plain value": ([claim_of(req("r", 2), constraints=[same("links")])],
                                 [slice_of(dev("d1", links=["a", "b"]), dev("d2", links="b"))], ["r=d1 r=d2"]),
    "different values": ([claim_of(req("r", 2), constraints=[different("numa")])],
                         [slice_of(dev("d1", numa=0), dev("d2", numa=0), dev("d3", numa=1))], ["r=d1 r=d3"]),
    "no different values": ([claim_of(req("r", 2), constraints=[different("numa")])],
                            [slice_of(dev("d1", numa=0), dev("d2", numa=0))], None),
    "a different value of devices that have none": ([claim_of(req("r", 2), constraints=[different("numa")])],
                                                    [slice_of(D1, D2)], None),
    "lists that differ in every value": ([claim_of(req("r", 2), constraints=[different("links")])],
        [slice_of(dev("d1", links=["a", "b"]), dev("d2", links=["b"]), dev("d3", links=["c"]))], ["r=d1 r=d3"]),
    # Prioritized lists.
    "the first alternative": ([claim_of(req(any_of=[req("a", 1, TWO), req("b", 1, ONE)]))], [slice_of(SMALL, LARGE)],
                              ["r/a=large"]),
    "the second alternative": ([claim_of(req(any_of=[req("a", 2, TWO), req("b", 1, ONE)]))], [slice_of(SMALL, LARGE)],
                               ["r/b=small"]),
    "no alternative": ([claim_of(req(any_of=[req("a", 2, TWO), req("b", 3, ONE)]))], [slice_of(SMALL, LARGE)], None),
    "an earlier request takes its second alternative": (
        [claim_of(req("q", any_of=[req("a", 1, TWO), req("b", 1, ONE)]), req("r", 1, TWO))],
        [slice_of(SMALL, LARGE)], ["q/b=small r=large"]),
    "all devices as an alternative": ([claim_of(req(any_of=[req("a", all=True), req("b", of="nic")]))],
                                      [slice_of(D1, D2), NIC], ["r/b=p2/d1"], [had("d1")]),
    "too many devices in the first alternative": ([claim_of(req(any_of=[req("a", 33), req("b", 2)]))],
                                                  [slice_of(*(dev(f"d{i:02}") for i in range(40)))],
                                                  ["r/b=d00 r/b=d01"]),
    "a constraint for a request holds for its alternatives": (
        [claim_of(req("r", any_of=[req("a", 2)]), constraints=[same("numa", "r")])],
        [slice_of(dev("d1", numa=0), dev("d2", numa=1), dev("d3", numa=1))], ["r/a=d2 r/a=d3"]),
    "a constraint for one alternative": (
        [claim_of(req("r", any_of=[req("a", 2), req("b", 2)]), constraints=[same("numa", "r/a")])],
        [slice_of(dev("d1", numa=0), dev("d2", numa=1))], ["r/b=d1 r/b=d2"]),
    # Taints.
    "no tainted device": ([claim_of(req())], [slice_of(dev("d1", taints=[taint()]), D2)], ["r=d2"]),
    "a tainted device that is tolerated": ([claim_of(req(**TOLERANT))], [slice_of(dev("d1", taints=[taint()]))],
        ["r=d1"]),
    "a second taint that is not tolerated": ([claim_of(req(**TOLERANT))],
                                             [slice_of(dev("d1", taints=[taint(), taint("NoExecute")]))], None),
    "a taint without effect": ([claim_of(req())], [slice_of(dev("d1", taints=[taint("None")]))], ["r=d1"]),
    "an alternative that tolerates": ([claim_of(req(any_of=[req("a"), req("b", **TOLERANT)]))],
                                      [slice_of(dev("d1", taints=[taint()]))], ["r/b=d1"]),
    "an admin does not get around a taint": ([claim_of(req(**ADMIN))], [slice_of(dev("d1", taints=[taint()]))], None),
    # Parts of devices by counters.
    "a part of a GPU": ([claim_of(req())], parts("4Gi"), ["r=d1"]),
    "parts until the GPU is used up": ([claim_of(req("r", 2))], parts("4Gi", "6Gi", "4Gi"), ["r=d1 r=d3"]),
    "too many parts": ([claim_of(req("r", 3))], parts("4Gi", "4Gi", "4Gi"), None),
    "the whole GPU while a part is taken": ([claim_of(req("r", 1, LEAST.format("8Gi")))], parts("8Gi", "1Gi"), None,
                                            [had("d2")]),
    "a part while the whole GPU is taken": ([claim_of(req())], parts("8Gi", "1Gi"), None, [had("d1")]),
    "a smaller part as the second choice": (
        [claim_of(req("q", 1, ONE), req("r", any_of=[req("a", 1, LEAST.format("6Gi")), req("b", 1, ONE)]))],
        parts("4Gi", "6Gi", "4Gi"), ["q=d1 r/b=d3"]),
    "counters of two sets": ([claim_of(req("r", 2))], [slice_of(
        dev("d1", counters={"gpu/memory": "4Gi", "nic/queues": "1"}),
        dev("d2", counters={"gpu/memory": "2Gi", "nic/queues": "2"}),
        dev("d3", counters={"gpu/memory": "2Gi", "nic/queues": "1"}), of=2),
        slice_of(counters={"gpu/memory": "8Gi", "nic/queues": "2"}, of=2, name="c")], ["r=d1 r=d3"]),
    "sets of the same name in two pools": ([claim_of(req("r", 2))], [
        slice_of(dev("d1", counters={"gpu/memory": "8Gi"}), of=2), GPU,
        slice_of(dev("d1", counters={"gpu/memory": "8Gi"}), of=2, pool="p2"),
        slice_of(counters={"gpu/memory": "8Gi"}, of=2, pool="p2", name="c2")], ["r=d1 r=p2/d1"]),
    "a counter that the pool does not have": ([claim_of(req())],
                                              [slice_of(dev("d1", counters={"gpu/cores": "1"}), of=2), GPU], None),
    "a counter set that the pool does not have": ([claim_of(req())], [slice_of(dev("d1", counters={"x/memory": "1"}))],
                                                  None),
    "parts of one GPU on several nodes": ([claim_of(req())], [slice_of(
        dev("d1", counters={"gpu/memory": "6Gi"}, on="n1"), dev("d2", counters={"gpu/memory": "6Gi"}, on="n2"),
        on=None, of=2), slice_of(counters={"gpu/memory": "8Gi"}, of=2, name="c", on=True)], None, [had("d2")]),
    # Devices that are ready after a while.
    "devices that are ready at once come first": ([claim_of(req())], [slice_of(
        dev("d1", bindingConditions=["Ready"])), slice_of(D1, pool="p2")], ["r=p2/d1"]),
    # Capacity that several share.
    "all of it where nothing is said": ([claim_of(req("a"), req("b"))], shares("4"), None),
    "as much as is asked for": ([claim_of(takes("1", "a"), takes("2", "b"))], shares("4"), ["a=d1 b=d1"]),
    "the next device when one is used up": ([claim_of(takes("3", "a"), takes("2", "b"))], shares("4", "4"),
                                            ["a=d1 b=d2"]),
    "what others have left of it": ([claim_of(takes("2"))], shares("4"), ["r=d1"], [had("d1", share=True, memory="2")]),
    "more than others have left of it": ([claim_of(takes("3"))], shares("4"), None,
                                         [had("d1", share=True, memory="2")]),
    "a device that someone has as a whole": ([claim_of(takes("1"))], shares("4"), None, [had("d1")]),
    "a device of its own of which others have parts": ([claim_of(req())], [slice_of(dev("d1", memory="4"))], None,
                                                       [had("d1", share=True, memory="1")]),
    "a capacity that the device does not have": ([claim_of(req(takes={"cores": "1"}))], shares("4"), None),
    "a capacity of a device of its own": ([claim_of(takes("1"))], [slice_of(dev("d1", memory="4"))], ["r=d1"]),
    "too much for a device of its own": ([claim_of(takes("5"))], [slice_of(dev("d1", memory="4"))], None),
    "a range: the least by default": ([claim_of(req("a"), req("b"))], ranged(), ["a=d1 b=d1"]),
    "a range: rounded up to a step": ([claim_of(takes("3", "a"), req("b"))], ranged(), None),
    "a range: more than its end": ([claim_of(takes("5"))], ranged(size="8"), None),
    "values: rounded up to the next": ([claim_of(takes("2", "a"), takes("1", "b"))], valued("1", "1", "3"),
        ["a=d1 b=d1"]),
    "values: more than the last": ([claim_of(takes("4"))], valued("1", "1", "3"), None),
    "all devices that have so much left": ([claim_of(takes("1", all=True))], shares("1", "1"), ["r=d2"],
                                           [had("d1", share=True, memory="1")]),
    "a first choice of a part is undone": ([claim_of(takes("2", "a"), req("b", 1, LEAST.format("4"),
        takes={"memory": "4"}))],
                                           shares("4", "2"), ["a=d2 b=d1"]),
    "different devices, not two parts of one": ([claim_of(takes("1", "a"), takes("1", "b"),
        constraints=[different("id")])],
        [slice_of(dev("d1", memory="4", id="x", allowMultipleAllocations=True),
                  dev("d2", memory="4", id="y", allowMultipleAllocations=True))], ["a=d1 b=d2"]),
    "shared parts of a GPU": ([claim_of(takes("1Gi", "a"), takes("2Gi", "b"))],
                              parts("4Gi", allowMultipleAllocations=True), ["a=d1 b=d1"]),
    "shared parts until the GPU is used up": ([claim_of(takes("4Gi", "a"), takes("4Gi", "b"), takes("1Gi", "c"))],
                                              parts("4Gi", "4Gi", "4Gi", allowMultipleAllocations=True), None),
    "a shared part of which others have some needs no more of the GPU": (
        [claim_of(takes("1Gi"))], parts("8Gi", allowMultipleAllocations=True), ["r=d1"],
        [had("d1", share=True, memory="2Gi")]),
    "another part of a GPU that a shared one has used up": (
        [claim_of(req("r", 1, 'device.attributes["gpu.example.com"].mode == "b"'))],
        [slice_of(dev("d1", memory="8Gi", counters={"gpu/memory": "8Gi"}, mode="a", allowMultipleAllocations=True),
                  dev("d2", memory="8Gi", counters={"gpu/memory": "8Gi"}, mode="b", allowMultipleAllocations=True),
                      of=2),
         GPU], None, [had("d1", share=True, memory="1Gi")]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_claims_get(name):
    claims, slices, expected, *allocated = CASES[name]
    assert short(found(claims, cluster_of(slices, BOTH, *allocated))) == expected


def test_a_gang_is_allocated_together_over_its_nodes():
    """The first claim must leave the large device to another pod of its gang (Kubernetes #138765)."""
    slices = [slice_of(LARGE, SMALL), slice_of(LARGE, SMALL, on="n2", pool="p2")]
    claims = [{**claim_of(req("r", 1, size)), "node": node} for size in (ONE, TWO) for node in ("n1", "n2")]
    assert sorted(short(found(claims, cluster_of(slices)))) == ["r=large", "r=p2/large", "r=p2/small", "r=small"]


def test_a_device_that_two_nodes_reach_is_given_to_one():
    claims = [{**claim_of(req()), "node": node} for node in ("n1", "n2")]
    assert short(found(claims, cluster_of([slice_of(D1, on=True)]))) is None
    assert sorted(short(found(claims, cluster_of([slice_of(D1, D2, on=True)])))) == ["r=d1", "r=d2"]


@pytest.mark.parametrize(
    ("claims", "slices", "text"),
    [
        ([claim_of(req("r", 3))], [slice_of(D1, D2)], "3 devices of class gpu wanted, 2 free"),
        ([claim_of(req())], [slice_of(dev("d1", taints=[taint()]))], "1 device of class gpu wanted, 0 free, 1 tainted"),
        ([claim_of(req())], [slice_of(D1, of=3)],
         "1 device of class gpu wanted, 0 free; of pool gpu.example.com/p1 only 1 of its 3 slices are there"),
        ([claim_of(req(of="other"))], [], "there is no DeviceClass other"),
        ([claim_of(req("r", 1, "device.attributes"))], [slice_of(D1)], "selector 'device.attributes': it is no bool"),
        ([claim_of(req("r", 1, "1 +"))], [slice_of(D1)], "selector '1 +': Syntax error: 'the end', expected a name"),
        ([claim_of(req("r", 2), constraints=[same("numa")])], [slice_of(dev("d1", numa=0), dev("d2", numa=1))],
         f"2 devices of class gpu wanted, with the same {DRIVER}/numa: no devices that are free together are enough"),
    ],
)  # fmt: skip
def test_what_is_short_is_said_with_numbers(claims, slices, text):
    assert found(claims, cluster_of(slices)).text == text


def test_equal_claims_are_not_tried_in_every_order(monkeypatch):
    """Nine claims for eight devices of which no two may be together: every order of them would be 8! tries."""
    monkeypatch.setattr(allocator, "TRIES_MAX", 2_000)
    devices = [dev(f"d{i}", memory="2Gi", counters={"gpu/memory": "1Gi"}) for i in range(9)]
    cluster = cluster_of([slice_of(*devices, of=2), slice_of(counters={"gpu/memory": "8Gi"}, of=2, name="c")])
    why = found([claim_of(req())] * 9, cluster)
    assert not why.given_up
    assert len(found([claim_of(req())] * 8, cluster)) == 8


def test_a_search_that_takes_too_long_is_given_up_and_says_so(monkeypatch):
    monkeypatch.setattr(allocator, "TRIES_MAX", 50)
    devices = [dev(f"d{i}", numa=i) for i in range(12)]
    claims = [claim_of(req("a", 4), req("b", 4), constraints=[same("numa", "b")])]
    why = found(claims, cluster_of([slice_of(*devices)]))
    assert why.given_up
    assert why.text == "no combination of devices was found in 66 tries"


def test_claims_on_many_nodes_share_the_tries_of_a_search(monkeypatch):
    """Of the devices of each node only the last two may be together: some 40 tries."""
    monkeypatch.setattr(allocator, "TRIES_MAX", 100)
    names = [f"n{i}" for i in range(10)]
    devices = [dev(f"d{i}", numa=min(i, 7)) for i in range(9)]
    cluster = cluster_of([slice_of(*devices, on=name, pool=name) for name in names])
    hard = claim_of(req("a", 2), constraints=[same("numa", "a")])
    assert len(found([{**hard, "node": name} for name in names[:2]], cluster)) == 2
    assert found([{**hard, "node": name} for name in names], cluster).given_up


def test_claims_that_may_get_the_same_devices_are_searched_together():
    cluster = cluster_of([slice_of(dev("d1"), dev("d2"), on=f"n{i}", pool=f"p{i}") for i in range(3)])
    asks = [Ask(f"c{i}", msgspec.convert(claim_of(req()), ClaimSpec), f"n{i % 3}") for i in range(5)]
    claims = [allocator._Claim(ask, allocator._options(ask, cluster.reach(ask.node), cluster)) for ask in asks]
    parts = [[claim.ask.claim for claim in part] for part in allocator._apart(claims)]
    assert parts == [["c0", "c3"], ["c1", "c4"], ["c2"]]


def test_a_rule_taints_the_devices_that_it_selects():
    rule = {
        "metadata": {"name": "ill"},
        "spec": {"taint": taint(), "deviceSelector": {"driver": DRIVER, "device": "d1"}},
    }
    nothing = {"metadata": {"name": "none"}, "spec": {"taint": taint()}}
    cluster = cluster_of([slice_of(D1, D2)], rules=[rule, nothing])
    assert short(found([claim_of(req())], cluster)) == ["r=d2"]
    cluster.inventory.taint(())
    assert short(found([claim_of(req())], cluster)) == ["r=d1"]


@pytest.mark.parametrize("more", [{"deviceClassName": "none"}, {"selectors": [{"cel": {"expression": "false"}}]}])
def test_a_rule_that_selects_by_class_or_expression_does_not_taint_everything(more):
    """Fields of Kubernetes 1.34 and older: without them it would be a rule for all devices."""
    rule = {"metadata": {"name": "ill"}, "spec": {"taint": taint(), "deviceSelector": more}}
    assert short(found([claim_of(req())], cluster_of([slice_of(D1)], rules=[rule]))) == ["r=d1"]


def test_a_rule_for_one_pool_costs_nothing_for_the_others():
    ill, other = dev("d1", taints=[taint("None")]), DeviceId(DRIVER, "p2", "d1")
    inventory = cluster_of([slice_of(ill), slice_of(ill, pool="p2")]).inventory
    before = inventory.device(other).taints
    rule = {"metadata": {"name": "ill"}, "spec": {"taint": taint(), "deviceSelector": {"pool": "p1"}}}
    inventory.taint([msgspec.convert(rule, DeviceTaintRule)])
    assert [one.effect for one in inventory.device(other._replace(pool="p1")).taints] == ["None", "NoSchedule"]
    assert inventory.device(other).taints is before
    inventory.taint(())
    assert [one.effect for one in inventory.device(other._replace(pool="p1")).taints] == ["None"]


# What is written.


def test_devices_of_a_node_are_for_that_node_alone():
    (one,) = found([claim_of(req())], cluster_of([slice_of(D1)])).values()
    (term,) = one.node_selector.node_selector_terms
    assert [(f.key, f.operator, f.values) for f in term.match_fields] == [("metadata.name", "In", ("n1",))]


@pytest.mark.parametrize(("on", "keys"), [(True, None), ({"region": "west"}, ["region"])])
def test_devices_of_several_nodes_keep_their_selector(on, keys):
    (one,) = found([claim_of(req())], cluster_of([slice_of(D1, on=on)])).values()
    terms = one.node_selector.node_selector_terms if one.node_selector is not None else None
    assert (terms and [rule.key for rule in terms[0].match_expressions]) == keys


def test_a_device_that_binds_to_its_node_is_for_that_node():
    slices = [slice_of(dev("d1", bindsToNode=True, bindingConditions=["Ready"]), on=True)]
    (one,) = found([claim_of(req())], cluster_of(slices)).values()
    assert one.node_selector.node_selector_terms[0].match_fields[0].values == ("n1",)
    assert one.devices.results[0].binding_conditions == ("Ready",)


def test_shares_have_an_id_and_say_what_they_take():
    (one,) = found([claim_of(takes("3"))], cluster_of(ranged(high="8", size="8"))).values()
    (result,) = one.devices.results
    assert (result.share_id, result.consumed_capacity) == ("share", {"memory": "4"})


def test_settings_of_classes_and_of_the_claim_are_copied():
    def opaque(name):
        return {"opaque": {"driver": DRIVER, "parameters": {"kind": name}}}

    classes = [class_of(config=[opaque("class")]), *BOTH[1:]]
    of_two, for_a = claim_of(req("a"), req("b", of="nic"), config=[opaque("claim")]), {"requests": ["a"]}
    of_two["devices"]["config"].append({**opaque("a"), **for_a})
    (one,) = found([of_two], cluster_of([slice_of(D1), NIC], classes)).values()
    assert [(c["source"], c["opaque"]["parameters"]["kind"], c.get("requests")) for c in one.devices.config] == [
        ("FromClass", "class", ["a"]), ("FromClaim", "claim", None), ("FromClaim", "a", ["a"]),
    ]  # fmt: skip


def test_settings_for_all_requests_name_none():
    config = [{"requests": ["r/a"], "opaque": {"driver": DRIVER}}, {"requests": ["r/b"], "opaque": {"driver": DRIVER}}]
    claim = claim_of(req("r", any_of=[req("a", 2), req("b", 1)]), config=config)
    (one,) = found([claim], cluster_of([slice_of(D1)])).values()
    assert one.devices.config == ({"source": "FromClaim", "opaque": {"driver": DRIVER}},)
