"""What of a node's own description is registered: never more than is known of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.lifecycle.registering import (
    AMOUNT_MAX,
    LABELS_MAX,
    NUMBER_MAX,
    TEXT_MAX_CHARS,
    absurd,
    believed,
)
from penstock.core.model.resources import RESOURCE_FIELDS, DeviceLink, Resources
from penstock.testing.builders import GIB, device, node

KNOWN = node("n", 2, labels=(("disk", "fast"),), rack="r", port_first=21_000)
AMOUNTS = st.builds(Resources, *[st.integers(0, 2**40)] * 4)
DEVICES = st.lists(
    st.builds(device, st.just(0), model=st.sampled_from(["A100", "H100"]), memory_bytes=st.integers(0, 2**38),
              healthy=st.booleans(), mig=st.booleans()),
    max_size=4,
).map(lambda found: tuple(replace(one, index=i) for i, one in enumerate(found)))  # fmt: skip


@given(AMOUNTS, DEVICES, AMOUNTS, DEVICES)
def test_nothing_is_registered_beyond_what_is_known_or_said(said_has, said_devices, has, devices):
    known = replace(KNOWN, capacity=has, devices=devices)
    spec, more = believed(replace(KNOWN, capacity=said_has, devices=said_devices, pool="gold", rack=""), known)
    for field in RESOURCE_FIELDS:
        assert getattr(spec.capacity, field) == min(getattr(has, field), getattr(said_has, field))
    assert len(spec.devices) == min(len(devices), len(said_devices))
    for found, one, other in zip(spec.devices, devices, said_devices, strict=False):
        assert (found.model, found.index) == (one.model, one.index)
        assert found.healthy <= (one.healthy and other.healthy and one.model == other.model)
        assert found.memory_bytes <= min(one.memory_bytes, other.memory_bytes)
        assert found.mig <= (one.mig and other.mig)
    assert replace(spec, capacity=has, devices=devices) == known
    assert {"pool", "rack"} <= set(more)
    assert believed(known, known) == (known, ())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pool", "gold"),
        ("labels", (("zone", "kept"),)),
        ("zone", "z"),
        ("switch", "s"),
        ("address", "203.0.113.9"),
        ("port_first", 22),
        ("port_count", 60_000),
        ("virtual", True),
    ],
)
def test_where_a_known_node_belongs_is_not_for_it_to_say(field, value):
    assert believed(replace(KNOWN, **{field: value}), KNOWN) == (KNOWN, (field,))


@pytest.mark.parametrize(
    ("devices", "more"),
    [
        ((device(0), device(1), device(2)), ("devices",)),
        ((device(0), device(1, memory_bytes=90 * GIB)), ("devices",)),
        ((device(0), device(1, mig=True)), ("devices",)),
        ((device(0), device(1, healthy=False)), ()),
        ((device(0),), ()),
    ],
    ids=["one more", "larger", "to be cut", "failed", "fewer"],
)
def test_more_devices_are_named_and_fewer_are_believed(devices, more):
    spec, named = believed(replace(KNOWN, devices=devices), KNOWN)
    assert named == more
    assert [d.healthy for d in spec.devices] == [d.healthy for d in devices[:2]]


def test_another_device_in_its_place_is_given_to_nobody():
    spec, more = believed(replace(KNOWN, devices=(device(0), device(1, model="H100"))), KNOWN)
    assert ([(d.model, d.healthy) for d in spec.devices], more) == ([("A100", True), ("A100", False)], ("devices",))


def far(index, **fields):
    return replace(KNOWN, devices=(device(0), device(index, **fields)))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (replace(KNOWN, zone=(TEXT_MAX_CHARS + 1) * "z"), "a text has more than 253 characters"),
        (replace(KNOWN, labels=(("x", 300 * "y"),)), "a text has more than 253 characters"),
        (far(1, uuid=300 * "y"), "a text has more than 253 characters"),
        (replace(KNOWN, labels=(("x", "y"),) * (LABELS_MAX + 1)), "it has 257 labels, 256 are allowed"),
        (replace(KNOWN, devices=tuple(map(device, range(1_025)))), "it has 1025 devices, 1024 are allowed"),
        (far(0), "its devices are not numbered from 0"),
        (far(2), "its devices are not numbered from 0"),
        (replace(KNOWN, capacity=Resources(-1)), f"an amount is not between 0 and {AMOUNT_MAX}"),
        (replace(KNOWN, capacity=Resources(1, AMOUNT_MAX + 1)), f"an amount is not between 0 and {AMOUNT_MAX}"),
        (far(1, memory_bytes=-1), f"an amount is not between 0 and {AMOUNT_MAX}"),
        (far(1, capability=(9, -1)), f"a number is not between 0 and {NUMBER_MAX}"),
        (far(1, numa_node=10**9), f"a number is not between 0 and {NUMBER_MAX}"),
        (replace(KNOWN, port_first=65_000, port_count=1_000), f"a number is not between 0 and {NUMBER_MAX}"),
        (far(1, links=(DeviceLink(2, "nvlink"),)), "a link of device 1 leads nowhere"),
        (far(1, links=(DeviceLink(-1, "nvlink"),)), "a link of device 1 leads nowhere"),
        (far(1, links=(DeviceLink(0, "nvlink"),) * 3), "device 1 has more links than there are devices"),
    ],
)
def test_what_no_node_can_be_is_refused(said, expected):
    assert absurd(said, "life") == expected


def test_a_life_with_a_long_name_is_refused():
    assert absurd(KNOWN, 254 * "x") == "a text has more than 253 characters"
    assert absurd(replace(KNOWN, devices=tuple(map(device, range(1_024)))), 253 * "x") == ""
