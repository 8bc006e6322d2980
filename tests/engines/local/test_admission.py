"""What the server knows of nodes before their agents say anything."""

import logging
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest
from msgspec.structs import replace

from penstock.bootstrap import measured
from penstock.core.model.resources import Resources
from penstock.engines.agent.worker import AgentConfig
from penstock.engines.local.admission import Admission, CheckedEvents
from penstock.engines.processes.paths import DataFolder
from penstock.testing.builders import node

SAID = node("n", 8, cpus=1_000, memory_gib=1_000, pool="gold")


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path)


def started(data: DataFolder, name: str, **fields) -> None:
    """Leave what starting the agent of a node leaves."""
    data.node(name).mkdir(parents=True)
    config = AgentConfig(str(data.root), node(name, **fields), "box")
    (data.node(name) / "agent.json").write_bytes(msgspec.json.encode(config))


def test_a_declared_node_is_registered_as_it_is_declared(data):
    started(data, "n", devices=8)
    assert Admission(data, [node("n", 2)]).registered(SAID) == node("n", 2)


def test_a_node_that_was_added_is_registered_as_its_agent_was_started(data):
    started(data, "n", devices=1)
    assert Admission(data, [node("other", 2)]).registered(SAID) == node("n", 1)


@pytest.mark.parametrize("spoilt", [False, True])
def test_of_a_node_of_which_nothing_is_known_only_bounds_are_sure(data, spoilt):
    if spoilt:
        data.node("n").mkdir(parents=True)
        (data.node("n") / "agent.json").write_text("{")
    made = Admission(data, [])
    assert made.registered(SAID) == SAID
    assert made.refusal(SAID, "life") == ""
    wrong = "what the agent says of its node cannot be: an amount is not between 0 and 1152921504606846976"
    assert made.refusal(replace(SAID, capacity=Resources(2**63)), "life") == wrong


def test_storage_that_is_measured_may_be_as_large_as_the_disk(data):
    declared = replace(node("n"), capacity=Resources(1_000, 1, 5))
    said = replace(declared, capacity=Resources(1_000, 1, 6))
    assert Admission(data, [declared], ["n"]).registered(said) == said
    assert Admission(data, [declared]).registered(said) == declared
    beyond = replace(declared, capacity=Resources(1_000, 1, 2**59))
    assert Admission(data, [declared], ["n"]).registered(beyond).capacity.storage_bytes < 2**59


def test_storage_is_measured_where_it_is_not_declared():
    assert measured(None, [node("n")]) == ["n"]


def test_that_a_node_says_more_is_logged_once(data, caplog):
    made = Admission(data, [node("n", 2)])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            made.registered(SAID)
    assert [(r.message, r.fields) for r in caplog.records] == [
        ("node says more than is known of it", ("pool", "cpu_milli", "memory_bytes", "devices"))
    ]


def test_a_node_is_heard_as_it_is_known_and_its_reports_as_they_may_be_kept(data):
    then, session, refused = Mock(), Mock(), Mock()
    events = CheckedEvents(then, Admission(data, [node("n", 2)]), lambda report: ("censored", report), refused)
    events.on_hello(SAID, "i1", session)
    events.on_report("a report", session)
    then.on_hello.assert_called_once_with(node("n", 2), "i1", session)
    then.on_report.assert_called_once_with(("censored", "a report"), session)
    refused.assert_not_called()


def test_a_node_that_cannot_be_is_turned_away_and_told_of(data):
    then, session, refused = Mock(), Mock(), Mock()
    events = CheckedEvents(then, Admission(data, []), Mock(), refused)
    events.on_hello(SAID, "i" * 10_000, session)
    (reason,) = session.refuse.call_args.args
    refused.assert_called_once_with("n", reason)
    then.on_hello.assert_not_called()
