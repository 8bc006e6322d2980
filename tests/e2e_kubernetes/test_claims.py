"""What pods claim beside their node: devices (DRA) and volumes, given out by the server and Kubernetes' controllers."""

from typing import Any

from penstock.engines.kubernetes.volumes.volumes import NOT_READY
from tests.e2e_kubernetes.kube import (
    CLAIMS,
    DEVICE_CLAIMS,
    DEVICE_CLASSES,
    DEVICE_TEMPLATES,
    PODS,
    SLICES,
    STORAGE_CLASSES,
    VOLUMES,
    Object,
)
from tests.e2e_kubernetes.live import Live, live
from tests.engines.kubernetes.devices_made import claim_of, class_of, dev, req, slice_of

USES: Object = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]}


async def devices(c: Live, *numbers: int, **of_class: Any) -> None:
    """Give each node a slice with so many devices, and make a class and a template of one of them."""
    driver = f"{c.name}.example.com"
    for i, number in enumerate(numbers, 1):
        node = c.node(f"n{i}")
        one = slice_of(*(dev(f"gpu{k}") for k in range(number)), on=node, pool=node, driver=driver)
        spec = {key: value for key, value in one["spec"].items() if value}
        await c.make(SLICES, node, spec=spec)
    await c.make(DEVICE_CLASSES, c.name, spec=class_of(driver=driver, **of_class)["spec"])
    await c.make(DEVICE_TEMPLATES, "gpu", spec={"spec": claim_of(req(of=c.name))})


async def given(c: Live) -> dict[str, list[str]]:
    """Return the devices that are reserved for each pod."""
    found: dict[str, list[str]] = {}
    for claim in await c.all_of(DEVICE_CLAIMS):
        status = claim.get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results", ())
        for one in status.get("reservedFor") or ():
            found.setdefault(one["name"], []).extend(f"{r['pool']}/{r['device']}" for r in results)
    return found


@live("n1", "n2")
async def test_a_pod_has_its_device_before_it_is_bound(c: Live) -> None:
    await devices(c, 0, 1)
    await c.ask("a", 0, **USES)
    assert await c.run("a") == ["n2"]
    assert await given(c) == {"a": [f"{c.node('n2')}/gpu0"]}
    (claim,) = await c.all_of(DEVICE_CLAIMS)
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]


@live("n1", "n2")
async def test_a_gang_gets_all_its_devices_or_none(c: Live) -> None:
    await devices(c, 1, 2)
    first = await c.gang("first", 2, 0, **USES)
    await c.run(*first)
    second = await c.gang("second", 2, 0, **USES)
    assert "devices of class" in await c.waits(*second)
    taken = await given(c)
    assert sorted(taken) == first
    assert len({device for devices in taken.values() for device in devices}) == 2
    for name in first:
        c.exits[name] = 0
    await c.run(*second)
    assert set(second) <= set(await given(c))


@live("n1")
async def test_an_extended_name_is_a_device_of_its_class(c: Live) -> None:
    name = f"{c.name}.example.com/gpu"
    await devices(c, 2, extendedResourceName=name)
    box = {"name": "main", "image": "none", "resources": {"limits": {"cpu": "1", name: "2"}}}
    await c.ask("a", containers=[box])
    await c.run("a")
    status = (await c.known(PODS, "a"))["status"]["extendedResourceClaimStatus"]
    (claim,) = await c.all_of(DEVICE_CLAIMS)
    assert status["resourceClaimName"] == claim["metadata"]["name"]
    assert len((await given(c))["a"]) == 2


@live("n1", "n2")
async def test_a_pod_goes_to_the_disk_that_its_claim_can_have(c: Live) -> None:
    """Nobody makes volumes of this class: the one that is there is on one node, and is bound once the pod is placed."""
    late = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    await c.make(STORAGE_CLASSES, c.name, **late)
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["n2"]}]}
    await c.make(
        VOLUMES,
        c.name,
        spec={
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": c.name,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": "/disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    )
    asked = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": c.name,
        "resources": {"requests": {"storage": "5Gi"}},
    }
    for name in ("first", "second"):
        await c.make(CLAIMS, name, spec=asked)
    await c.ask("a", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "first"}}])
    assert await c.run("a") == ["n2"]
    await c.status(CLAIMS, "first", phase="Bound")
    await c.ask("b", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "second"}}])
    await c.waits("b", reason=NOT_READY)
    assert (await c.known(CLAIMS, "second"))["status"]["phase"] == "Pending"
