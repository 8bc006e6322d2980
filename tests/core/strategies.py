"""Hypothesis strategies for small clusters and asks: few nodes, few devices, every filter now and then."""

from hypothesis import strategies as st

from penstock.core.model.cluster import NodeSpec
from penstock.core.model.jobs import GangAsk
from penstock.core.model.resources import Device, DeviceLink
from penstock.testing.builders import GIB, ask, device, node

LINKS = ("nvlink", "pcie", "numa")


@st.composite
def device_sets(draw: st.DrawFn, most: int = 4) -> tuple[Device, ...]:
    """Return devices whose links of each kind join whole groups, as on real boards."""
    count = draw(st.integers(0, most))
    group = [draw(st.sampled_from([0, 1])) for _ in range(count)]
    kind = draw(st.sampled_from(LINKS[:2]))
    return tuple(
        device(
            i,
            model=draw(st.sampled_from(["A100", "H100"])),
            memory_bytes=draw(st.sampled_from([40, 80])) * GIB,
            healthy=draw(st.sampled_from([True, True, True, False])),
            numa_node=draw(st.sampled_from([0, 1])),
            links=tuple(DeviceLink(j, kind) for j in range(count) if j != i and group[j] == group[i]),
        )
        for i in range(count)
    )


@st.composite
def node_lists(draw: st.DrawFn, most: int = 4) -> list[NodeSpec]:
    return [
        node(
            f"n{i}",
            draw(device_sets()),
            cpus=draw(st.integers(1, 4)),
            rack=draw(st.sampled_from(["", "x", "y"])),
            switch=draw(st.sampled_from(["", "s", "t"])),
            labels=draw(st.sampled_from([(), (("disk", "ssd"),)])),
        )
        for i in range(draw(st.integers(1, most)))
    ]


def gangs() -> st.SearchStrategy[GangAsk]:
    return st.builds(
        ask,
        devices=st.integers(0, 3),
        replicas=st.integers(1, 4),
        cpus=st.integers(0, 3),
        topology=st.sampled_from([None, None, "node", "switch", "rack", "spread"]),
        required=st.booleans(),
        labels_wanted=st.sampled_from([(), (), (("disk", "ssd"),)]),
    ).flatmap(_device_filters)


def _device_filters(gang: GangAsk) -> st.SearchStrategy[GangAsk]:
    from msgspec.structs import replace

    if gang.each.devices is None:
        return st.just(gang)
    filters = st.fixed_dictionaries(
        {
            "models": st.sampled_from([(), (), ("A100",), ("H100", "A100")]),
            "memory_min_bytes": st.sampled_from([0, 0, 80 * GIB]),
            "link": st.sampled_from([None, None, "nvlink", "pcie", "numa", "node"]),
        }
    )
    return filters.map(lambda f: replace(gang, each=replace(gang.each, devices=replace(gang.each.devices, **f))))
