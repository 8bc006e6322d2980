"""How many nodes are asked for, cancelled and given back."""

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.core.model.errors import InvalidInput
from penstock.engines.slurm.pilot.settings import PilotSettings, read_settings
from penstock.engines.slurm.pilot.sizing import Allocation, Decision, Memory, after_ask, decide

SETTINGS = PilotSettings(nodes_max=6, nodes_per_allocation=2, idle_s=60, cancel_after_s=10, backoff_s=5, join_s=30)

FRESH = Memory()


def asked(number: str, nodes: int = 1, at: float = 0.0) -> Allocation:
    return Allocation(number=number, nodes=nodes, phase="asked", asked_s=at)


def held(number: str, nodes: int = 1, *, joined: int | None = None, idle_s: float = 0.0) -> Allocation:
    here = nodes if joined is None else joined
    return Allocation(
        number=number, nodes=nodes, phase="held", asked_s=0, began_s=100, joined=here, idle_since_s=idle_s
    )


def choose(*known: Allocation, missing: int = 0, now_s: float = 101.0, memory: Memory = FRESH, **over) -> Decision:
    return decide(replace(SETTINGS, **over), known, missing, now_s, memory)


def test_missing_nodes_are_asked_for_once_and_within_the_bound():
    assert choose(missing=3).asks == (2, 1)
    assert choose(asked("1", 2), missing=3).asks == (1,)
    assert choose(held("1", 2, joined=1), missing=1).asks == ()
    full = choose(held("1", 2), held("2", 2), asked("3"), missing=9)
    assert (full.asks, full.held_back) == ((1,), 7)
    assert choose(nodes_min=3).asks == (2, 1)
    assert choose(held("1", 2), nodes_min=3).asks == (1,)


def test_an_ending_allocation_counts_for_nothing():
    ending = Allocation(number="1", nodes=2, phase="ending", asked_s=0)
    assert choose(ending, missing=2).asks == (2,)


def test_an_ask_is_cancelled_once_it_has_been_of_no_use_for_a_while_the_newest_first():
    known = (asked("1", 2, at=1), asked("2", 1, at=2), asked("3", 1, at=3))
    first = choose(*known, missing=2, now_s=50)
    assert (first.cancels, first.memory.surplus_since_s) == ((), 50)
    assert choose(*known, missing=2, now_s=59, memory=first.memory).cancels == ()
    assert choose(*known, missing=2, now_s=60, memory=first.memory).cancels == ("3", "2")
    again = choose(*known, missing=4, now_s=59, memory=first.memory)
    assert again.memory.surplus_since_s == 0
    assert choose(asked("1", 2), missing=1, now_s=99).memory.surplus_since_s == 0  # no smaller ask is made of it


def test_idle_allocations_go_back_and_the_least_number_stays():
    assert choose(held("1", idle_s=41), now_s=100).returns == ()
    assert choose(held("1", idle_s=40), now_s=100).returns == ("1",)
    both = (held("1", 2, idle_s=40), held("2", 2, idle_s=30))
    assert choose(*both, now_s=100).returns == ("2", "1")
    assert choose(*both, now_s=100, nodes_min=2).returns == ("2",)


def test_an_allocation_whose_nodes_do_not_come_goes_back_and_its_nodes_are_asked_for_again():
    late = choose(held("1", 2, joined=0), missing=2, now_s=130)
    assert (late.returns, late.asks) == (("1",), (2,))
    assert choose(held("1", 2, joined=0), missing=2, now_s=129).returns == ()


def test_nodes_that_are_lost_do_not_come_back():
    gone = Allocation(number="1", nodes=1, phase="held", asked_s=0, began_s=100, lost=1)
    assert choose(gone, missing=1)[:3] == ((1,), (), ("1",))
    half = Allocation(number="1", nodes=2, phase="held", asked_s=0, began_s=100, joined=1, lost=1)
    assert choose(half, missing=1)[:3] == ((1,), (), ())


def test_asks_that_fail_are_made_again_later_each_time():
    memory = after_ask(Memory(), 100, ok=False)
    put_off = choose(missing=1, now_s=104, memory=memory)
    assert (put_off.asks, put_off.again_s) == ((), 105)
    assert choose(missing=1, now_s=105, memory=memory).asks == (1,)
    twice = after_ask(memory, 105, ok=False)
    assert choose(missing=1, now_s=114, memory=twice).again_s == 115
    for _ in range(40):
        twice = after_ask(twice, 200, ok=False)
    assert choose(missing=1, now_s=200, memory=twice).again_s == 200 + 32 * 5
    assert after_ask(twice, 201, ok=True) == Memory()


@pytest.mark.parametrize("seed", range(30))
def test_any_load_is_met_within_the_bounds_and_leaves_nothing_behind(seed):
    """Nodes come late or never, are lost and found idle; need comes and goes: a simulation of refreshes."""
    draw, now_s, memory = random.Random(seed), 1_000.0, Memory()
    known: dict[str, Allocation] = {}
    sent, gone, need = 0, 0, 0
    for step in range(400):
        now_s += 5
        need = 0 if step >= 200 else draw.choice((0, 0, 1, 3, 9)) if step % 10 == 0 else need
        joined = sum(one.joined for one in known.values() if one.phase == "held")
        busy = min(need, joined)
        decision = decide(SETTINGS, known.values(), max(0, need - joined), now_s, memory)
        memory = decision.memory
        for nodes in decision.asks:
            ok = draw.random() < 0.8
            memory = after_ask(memory, now_s, ok=ok)
            if not ok:
                break
            sent += 1
            known[str(sent)] = asked(str(sent), nodes, now_s)
        for number in (*decision.cancels, *decision.returns):
            gone += known.pop(number) is not None
        for number, one in list(known.items()):
            if one.phase == "asked" and draw.random() < 0.3:
                known[number] = replace(one, phase="held", began_s=now_s)
            elif one.phase == "held" and one.joined < one.nodes and draw.random() < 0.5:
                known[number] = replace(one, joined=one.joined + 1, idle_since_s=now_s)
            elif one.phase == "held" and draw.random() < 0.01:
                del known[number]
            elif one.joined:
                uses, busy = min(busy, one.joined), busy - min(busy, one.joined)
                known[number] = replace(one, idle_since_s=0.0 if uses else one.idle_since_s or now_s)
        total = sum(one.nodes for one in known.values())
        assert total <= SETTINGS.nodes_max
    assert known == {}
    assert gone <= sent <= 60


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes_max: 0", "Expected `int` >= 1"),
        ("nodes: 3", "unknown field `nodes`"),
        ("{nodes_min: 9, nodes_max: 3}", "nodes_min is 9, expected at most nodes_max (3)"),
        ("margin_s: 9000", "margin_s is 9000, expected less than half of time_limit_s (7200)"),
        ("options: [--time=3]", "options has '--time=3', which the pilot sets itself: use time_limit_s"),
        ("options: [-p]", "options has '-p', expected long options such as --reservation=night"),
        ("partition: 'a b'", "matching regex"),
        ("python: python3", "python is 'python3', expected an absolute path"),
        ("[", "cannot be used"),
    ],
)
def test_settings_that_cannot_be_used_are_named(tmp_path: Path, text, said):
    path = tmp_path / "pilot.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        read_settings(path)
    assert said in caught.value.message


def test_settings_are_read_and_others_have_their_defaults(tmp_path: Path):
    path = tmp_path / "pilot.yaml"
    path.write_text("nodes_max: 8\ngres: gpu:a100:4\noptions: [--reservation=night]\n")
    read = read_settings(path)
    assert (read.nodes_max, read.gres, read.options, read.nodes_min) == (8, "gpu:a100:4", ("--reservation=night",), 0)
