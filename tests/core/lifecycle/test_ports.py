"""Named ports of replicas: each on its node, held by one attempt alone, told to the program."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.lifecycle.ports import stride_of
from penstock.core.messages.orders import StartReplica
from penstock.testing.builders import node
from penstock.testing.harness import World


def told(w: World, job_id: int) -> list[dict[str, str]]:
    """Return by rank the ports in the environments of a job's last attempt."""
    number = w.job(job_id).last_attempt
    orders = [order for _, order in w.orders if isinstance(order, StartReplica) and order.key.job_id == job_id]
    last = sorted((one for one in orders if one.key.attempt == number), key=lambda one: one.key.rank)
    return [{name: value for name, value in one.env if name.startswith("PENSTOCK_PORT_")} for one in last]


def test_each_replica_gets_its_ports_on_its_node():
    w = World(node("a", 1, port_first=7_000, port_count=10), node("b", 1, port_first=8_000, port_count=10))
    job_id = w.submit(1, 2, ports=("http", "metrics"), env=(("A", "b"),))
    w.cycle()
    at = {w.where(job_id, rank): ports for rank, ports in enumerate(told(w, job_id))}
    ports = {name: [int(port) for port in found.values()] for name, found in at.items()}
    assert [sorted(found) for found in at.values()] == [["PENSTOCK_PORT_HTTP", "PENSTOCK_PORT_METRICS"]] * 2
    assert all(7_000 <= port < 7_010 for port in ports["a"])
    assert all(8_000 <= port < 8_010 for port in ports["b"])
    assert w.attempt(job_id).port not in ports[w.where(job_id, 0)]


def test_ports_are_held_for_the_attempt_and_then_given_to_others():
    w = World(node("a", 2, port_first=7_000, port_count=4))
    first = w.submit(ports=("http",))
    w.run(first)
    second = w.submit(ports=("http",))
    w.run(second)
    taken = {port for _, port in w.state.indexes.ports}
    assert taken == set(range(7_000, 7_004))
    w.exit_replica(first)
    assert len(w.state.indexes.ports) == 2
    third = w.submit(ports=("http",))
    w.run(third)
    assert {port for _, port in w.state.indexes.ports} == taken


def test_a_node_without_a_port_left_says_so():
    w = World(node("a", 2, port_first=7_000, port_count=2))
    w.run(w.submit(ports=("http",)))
    refused = w.submit(ports=("http", "metrics"))
    w.cycle()
    (order,) = [one for _, one in w.orders if isinstance(one, StartReplica) and one.key.job_id == refused]
    assert order.refused == "node a has no port left for http, metrics"


def test_a_job_without_names_holds_the_port_of_its_rendezvous_alone():
    w = World(node("a", 2))
    w.run(w.submit())
    assert len(w.state.indexes.ports) == 1


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), max_size=8), st.data())
def test_no_two_live_attempts_share_a_port(jobs, data):
    w = World(node("a", 4, port_first=7_000, port_count=12), node("b", 4, port_first=7_000, port_count=12))
    for replicas, names in jobs:
        job_id = w.submit(1, replicas, ports=tuple("abc"[:names]))
        w.cycle()  # all invariants are checked, `ports_are_unique` among them
        if w.job(job_id).attempt is not None and data.draw(st.booleans()):
            w.start(job_id)
            for rank in range(replicas):
                w.exit_replica(job_id, rank)


@given(count=st.integers(20, 1_000))
def test_who_took_half_of_the_ports_costs_others_three_tries_at_most(count):
    order = [number * stride_of(count) % count for number in range(2 * count)]
    assert sorted(order[:count]) == list(range(count))
    tries = "".join("x" if port < count // 2 else " " for port in order).split()
    assert max(map(len, tries)) <= 2
