"""Controller and agents joined directly: whatever is asked and however programs end, everything comes to an end."""

import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.control import messages as msg
from penstock.core.model.jobs import ExitInfo
from penstock.engines.agent import state_machine as br
from penstock.engines.agent.protocol import ServerOrders, ServerTaken, ServerWelcome
from penstock.testing.builders import node
from tests.control.rig import Rig, submit
from tests.properties import examples

STEPS = ("submit", "gang", "important", "cancel", "exit", "fail", "drain", "open", "turn", "turn", "turn", "wait")


class Machine:
    """A node: the real agent logic, its processes as a set of keys."""

    def __init__(self, rig: Rig, name: str) -> None:
        self._rig, self.name = rig, name
        self.brain, self.processes, self._seq = br.AgentState(name, "i1"), set(), 0
        welcome = rig.ask(msg.Hello(node(name), "i1"))
        self.brain.on_welcome(ServerWelcome(welcome.epoch, 1, welcome.lease_ms, welcome.heartbeat_ms), 0)

    def order(self, orders) -> None:
        self._seq += 1
        self.act(self.brain.on_orders(ServerOrders(1, 1, self._seq, tuple(orders)), self._rig.clock.now))

    def act(self, actions) -> None:
        for action in actions:
            if isinstance(action, br.Spawn):
                self.processes.add(action.order.key)
                self.brain.on_started(action.order.key, 1)
            elif isinstance(action, br.AskToStop | br.KillAll):
                self.end(action.key, ExitInfo(signal=15))

    def end(self, key, info) -> None:
        if key in self.processes:
            self.processes.remove(key)
            self.brain.on_gone(key, info)

    def talk(self) -> None:
        self.act(self.brain.on_time(self._rig.clock.now))
        while (sent := self.brain.next_report(self._rig.clock.now)) is not None:
            handled = self._rig.handle(sent.report)
            reply = handled.replies[0]
            self.brain.on_taken(ServerTaken(1, 1, reply.seq, reply.accepted), self._rig.clock.now)
            self.order(reply.orders)
            carry(self._rig, handled)


def carry(rig, handled) -> None:
    for name, order in handled.orders:
        rig.machines[name].order([order])


def turn(rig) -> None:
    rig.clock.now += 100
    carry(rig, rig.handle(msg.TimePassed()))
    if rig.controller.plan_clock.wanted:
        carry(rig, rig.cycle())
    for machine in rig.machines.values():
        machine.talk()


def step(rig, name: str, number: int) -> None:
    living = [(m, k) for m in rig.machines.values() for k in sorted(m.processes)]
    if name in ("exit", "fail") and living:
        machine, key = living[number % len(living)]
        machine.end(key, ExitInfo(0 if name == "exit" else 3))
    elif name in ("submit", "gang", "important"):
        replicas, priority = (3, 500) if name == "gang" else (1, 900 if name == "important" else 100)
        rig.handle(submit(1 + number % 4, replicas, priority=priority, retries_max=number % 2, grace_ms=500))
    elif name == "cancel" and rig.state.jobs:
        carry(rig, rig.handle(msg.Cancel(sorted(rig.state.jobs)[number % len(rig.state.jobs)], "ann")))
    elif name in ("drain", "open"):
        carry(rig, rig.handle(msg.Drain("ab"[number % 2], name == "drain", "op", evict=number % 3 == 0)))
    elif name == "wait":
        rig.clock.now += 400
    turn(rig)


def finish(rig) -> None:
    """Open all nodes, let every program end well, and give time."""
    for _ in range(400):
        if not rig.state.jobs:
            break
        for name in ("a", "b"):
            rig.handle(msg.Drain(name, False, "op"))
        for machine in rig.machines.values():
            for key in sorted(machine.processes):
                machine.end(key, ExitInfo(0))
        rig.clock.now += 900
        turn(rig)
    turn(rig)


@examples(40)
@given(seed=st.integers(0, 2**32), length=st.integers(0, 80))
def test_every_job_ends_once_and_nothing_is_left_on_the_nodes(seed, length):
    rig, rnd = Rig(), random.Random(seed)
    rig.machines = {name: Machine(rig, name) for name in ("a", "b")}
    turn(rig)
    for _ in range(length):
        step(rig, rnd.choice(STEPS), rnd.randrange(50))
        held = {k for m in rig.machines.values() for k in m.processes}
        assert len({(k.job_id, k.rank) for k in held}) == len(held)
    finish(rig)
    assert (rig.state.jobs, sorted(rig.store.finished)) == ({}, list(range(1, rig.state.next_job)))
    assert [m.processes or m.brain.entries for m in rig.machines.values()] == [{}, {}]
    assert rig.fits_log()
