"""Node states by number and as columns: what a row says is what the state is, however many there are."""

from penstock.core.place.capacity import NodeCapacity, empty, shape_of
from penstock.core.place.state_table import StateTable, whole_free
from penstock.testing.builders import device, node
from penstock.testing.harness import World


def shape(*models, **fields):
    devices = tuple(device(i, model=model) for i, model in enumerate(models))
    return shape_of(World(node("a", devices, **fields)).state.nodes["a"])


def row_of(table: StateTable, row: int):
    return (
        table.host[row].tolist(),
        table.capacity[row].tolist(),
        [milli for milli in table.devices[row].tolist() if milli >= 0],
        int(table.kind[row]),
        int(table.device_count[row]),
    )


def expected(free: NodeCapacity, kind: int):
    has = free.shape.capacity
    return (
        [free.cpu_milli, free.memory_bytes, free.storage_bytes, free.bandwidth_bps],
        [has.cpu_milli, has.memory_bytes, has.storage_bytes, has.bandwidth_bps],
        list(free.devices),
        kind,
        len(free.devices),
    )


def test_rows_stay_as_they_are_while_the_table_grows():
    shapes = [shape("A"), shape("B", "B", cpus=8), shape(), shape("A", "A", "A", "A", memory_gib=8)]
    kinds = [0, 1, -1, 0]
    table = StateTable()
    empties = [empty(shapes[i % 4]) for i in range(1_100)]
    frees = [free._replace(cpu_milli=i, devices=(i,) * len(free.devices)) for i, free in enumerate(empties)]
    assert [table.id_of(free) for free in frees] == list(range(1_100))
    assert [table.id_of(free) for free in frees[:300]] == list(range(300))
    assert len(table) == 1_100
    assert [row_of(table, i) for i in range(1_100)] == [expected(free, kinds[i % 4]) for i, free in enumerate(frees)]
    assert len(table.kinds) == 2


def test_what_is_free_at_all_is_known_by_number():
    table = StateTable()
    two = empty(shape("A", "A"))
    for free in (two, two._replace(closed="node_lost"), two._replace(devices=(0, 0)), two._replace(devices=(0, 1))):
        table.id_of(free)
    table.id_of(two._replace(devices=(0, 0), mig=((0, (("1g.10gb", 0),)),)))
    assert table.open == [True, False, True, True, True]
    assert table.rich == [True, True, False, True, True]
    assert table.free_milli == [2_000, 2_000, 0, 1, 0]
    assert table.pools == ["default"] * 5
    assert whole_free(table.devices[:5]).tolist() == [2, 2, 0, 0, 0]
