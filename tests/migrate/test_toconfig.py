"""Promises add up, ratios of weights stay, and what cannot hold is refused with its place."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.config.queues import tree_problems
from penstock.migrate.errors import ImportFault
from penstock.migrate.model import Amount, Flavour, Imported, MigrationSource, SourceQueue
from penstock.migrate.report import MigrationReport, SourcePlace
from penstock.migrate.toconfig import to_config
from tests.migrate.helpers import queue, read_back
from tests.properties import examples


def a_queue(name: str, parent: str = "", **fields) -> SourceQueue:
    return SourceQueue(key=name, name=name, parent=parent, place=SourcePlace("f", len(name)), **fields)


def config_of(*queues: SourceQueue, **fields) -> Imported:
    return to_config(MigrationSource(queues=queues, **fields), MigrationReport())


def test_a_parent_is_lifted_to_what_its_children_are_promised():
    amounts = (Amount("devices", "a", 3000), Amount("devices", "b", 2000), Amount("cpus", "", 500))
    found = config_of(
        a_queue("child", "top", amounts=amounts),
        a_queue("top", amounts=(Amount("devices", "", 4000),)),
        flavours=(Flavour("a", "A100"), Flavour("b", "H100")),
    )
    assert queue(found, "top").guaranteed == (
        ("cpus", 500), ("devices", 5000), ("devices:A100", 3000), ("devices:H100", 2000),
    )  # fmt: skip
    assert queue(found, "child").guaranteed == queue(found, "top").guaranteed  # 5 by model are 5 devices
    assert [(e.key, e.value) for e in found.report] == [
        ("guaranteed cpus", "0"), ("guaranteed devices:A100", "0"), ("guaranteed devices:H100", "0"),
    ]  # fmt: skip


def test_a_queue_that_adds_has_its_own_on_top():
    found = config_of(
        a_queue("child", "top", amounts=(Amount("devices", "", 3000),)),
        a_queue("top", adds=True, sealed=True, amounts=(Amount("devices", "", 1000, borrow=500),)),
    )
    assert queue(found, "top").guaranteed == (("devices", 4000),)
    assert queue(found, "top").max == (("devices", 4500),)


def test_borrowing_limits_make_maxima_unless_one_flavour_has_none():
    limited = (Amount("cpus", "a", 1000, borrow=500), Amount("cpus", "b", 2000, borrow=0, max=9000))
    found = config_of(a_queue("q", amounts=limited), a_queue("r", amounts=(*limited, Amount("cpus", "c", 1))))
    assert queue(found, "q").max == (("cpus", 3500),)
    assert queue(found, "r").max == ()


def test_what_has_no_lending_limit_is_lent_whole():
    amounts = (Amount("devices", "", 8000, lend=3000), Amount("cpus", "", 5000))
    assert queue(config_of(a_queue("q", amounts=amounts)), "q").lend == (("cpus", 5000), ("devices", 3000))
    assert queue(config_of(a_queue("q", amounts=amounts[1:])), "q").lend is None
    by_model = (Amount("devices", "a", 4000, lend=1000), Amount("devices", "b", 2000))
    found = config_of(a_queue("q", amounts=by_model), flavours=(Flavour("a", "A100"), Flavour("b", "H100")))
    assert queue(found, "q").lend == (("devices", 3000), ("devices:A100", 1000), ("devices:H100", 2000))


def test_models_that_a_queue_does_not_name_are_closed_to_it():
    found = config_of(
        a_queue("q", only_named=True, amounts=(Amount("devices", "a", 1000, borrow=1000),)),
        a_queue("none", only_named=True),
        flavours=(Flavour("a", "A100"), Flavour("b", "H100")),
    )
    assert queue(found, "q").max == (("devices", 2000), ("devices:A100", 2000), ("devices:H100", 0))
    assert queue(found, "none").max == (("devices", 0), ("devices:A100", 0), ("devices:H100", 0))


def test_ratios_of_weights_among_siblings_stay():
    found = config_of(a_queue("a", weight=Fraction(1, 2)), a_queue("b", weight=Fraction(2)), a_queue("c"))
    assert [queue(found, name).weight for name in "abc"] == [1, 4, 2]
    big = config_of(a_queue("a", weight=Fraction(2 * 10**9)), a_queue("b", weight=Fraction(1)))
    assert [queue(big, name).weight for name in "ab"] == [1_000_000, 1]
    assert [(e.key, e.outcome) for e in big.report] == [("weight", "approximated")]
    none = config_of(a_queue("a", weight=Fraction(0)), a_queue("b", weight=Fraction(3)))
    assert [queue(none, name).weight for name in "ab"] == [3, 3000]


def test_names_become_plain_and_stay_apart():
    found = config_of(a_queue("root"), a_queue("a b"), a_queue("a:b"), a_queue("x" * 80))
    assert [q.name for q in found.config.queues] == ["root-2", "a_b", "a_b-2", "x" * 63]


@pytest.mark.parametrize(
    ("queues", "said"),
    [
        ((a_queue("a", "b"), a_queue("b", "a")), "this queue is above itself"),
        ((a_queue("a", "a"),), "this queue is above itself"),
        ((a_queue("ab"), a_queue("a"), a_queue("a")), "each queue once; it is also at f:1"),
        ((a_queue("alpha"), a_queue("b", "alpa")), "'alpa', expected the name of a queue"),
        ((a_queue("a", amounts=(Amount("cpus", "", 2000, max=1000),)),), "at most 1 of cpus, the maximum of queue 'a'"),
        ((a_queue("a", amounts=(Amount("cpus", "", 2**60),)),), "an amount of at most"),
        (tuple(a_queue(f"q{i}") for i in range(10_001)), "at most 10000 queues"),
    ],
)
def test_what_cannot_hold_is_refused(queues, said):
    with pytest.raises(ImportFault, match=said):
        config_of(*queues)


amounts = st.builds(
    Amount,
    st.sampled_from(["devices", "cpus", "memory"]),
    st.sampled_from(["", "a", "b"]),
    st.integers(0, 2**40),
    st.none() | st.integers(0, 2**40),
    st.just(None),
    st.none() | st.integers(0, 2**40),
)


@st.composite
def sources(draw):
    queues: list[SourceQueue] = []
    for number in range(draw(st.integers(1, 6))):
        flags = {name: draw(st.booleans()) for name in ("adds", "sealed", "only_named")}
        parent = draw(st.sampled_from(["", *(q.key for q in queues)]))
        own = draw(st.lists(amounts, max_size=3, unique_by=lambda a: (a.resource, a.flavour)))
        weight = draw(st.fractions(0, 10**7))
        queues.append(a_queue(f"q{number}", parent, weight=weight, amounts=tuple(own), **flags))
    order = draw(st.permutations(queues))
    return MigrationSource(queues=tuple(order), flavours=(Flavour("a", "A100"), Flavour("b", "H100")))


@given(sources())
@examples(200)
def test_whatever_is_made_is_a_tree_that_holds_and_is_read_back(source):
    try:
        found = to_config(source, MigrationReport())
    except ImportFault as fault:
        if "the maximum of queue" in str(fault):
            return
        raise
    assert tree_problems(found.config.queues) == []
    assert read_back(found) == found.config
