"""What nodes of an engine cannot promise: said for each engine, briefly, and for no node of our own."""

import pytest

from penstock.core.model import weaker
from penstock.core.model.weaker import NOT_PROMISED, not_promised
from penstock.testing.builders import node

ENGINES = sorted(NOT_PROMISED)


def test_every_engine_has_its_list():
    named = {getattr(weaker, name) for name in dir(weaker) if name.isupper() and isinstance(getattr(weaker, name), str)}
    assert named | {""} == set(ENGINES)
    assert all(NOT_PROMISED[name] for name in named)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_list_names_each_thing_once_and_fits_a_line(engine):
    found = not_promised(node("a", engine=engine, at="elsewhere"))
    assert len({one.name for one in found}) == len(found)
    assert all(len(one.name) <= 20 and len(one.text) <= 100 for one in found)


def test_a_node_of_the_servers_machine_promises_everything_and_an_unknown_engine_is_no_fault():
    assert not_promised(node("a")) == not_promised(node("a", engine="of a later version")) == ()
    assert [one.name for one in not_promised(node("a", at="10.0.0.7"))] == ["last output"]
