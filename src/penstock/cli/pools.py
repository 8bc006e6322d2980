"""`penstock pools` and `quota`: capacity, allocations, and their holders."""

from penstock.cli.options import JsonOption
from penstock.cli.output import Console, print_json, table
from penstock.cli.place import client_of
from penstock.core.model.answers import PoolStats, QuotaRow
from penstock.core.model.quantities import format_milli, format_resource, format_size, format_time


def pools(json: JsonOption = False) -> None:
    """Show capacity, allocation and device states of each pool."""
    listed = client_of().pools()
    if json:
        print_json({"pools": listed})
        return
    rows, power = [], ["power"] if any(one.power_limit_mw is not None for one in listed) else []
    for one in listed:
        amounts = (one.total_milli, one.allocated_milli, one.reserved_milli, one.available_milli, one.out_milli)
        counts = [f"{count} {state}" for state, count in _counts(one.devices) if count]
        rows.append(
            (
                one.name,
                f"{one.nodes_open} of {one.nodes}",
                *map(format_milli, amounts),
                f"{one.utilisation_milli / 10:.0f} %",
                ", ".join(counts) or "none",
                f"{one.cpu_held_milli / 1000:g}/{one.cpu_milli / 1000:g}",
                f"{format_size(one.memory_held_bytes)} of {format_size(one.memory_bytes)}",
                one.virtualization,
                *([power_text(one)] if power else []),
            )
        )
    amounts_shown = ("total", "allocated", "reserved", "available", "out", "used")
    columns = ("pool", "nodes open", *amounts_shown, "devices", "CPUs", "memory", "parts", *power)
    drop = ("parts", "out", "reserved", "memory", "CPUs", "allocated", "nodes open", "devices", "total", *power)
    none = "no pools are declared"
    Console().print(
        table(
            columns, rows, right=(*amounts_shown, "CPUs"), drop=drop, of=listed, kind=PoolStats, key="name", empty=none
        )
    )


def power_text(one: PoolStats) -> str:
    """Return what a pool's devices in use are expected to draw, of its limit; '' where it has none."""
    if one.power_mw is None or one.power_limit_mw is None:
        return ""
    return f"{one.power_mw / 1000:,.0f} of {one.power_limit_mw / 1000:,.0f} W"


def _counts(counts: object) -> list[tuple[str, int]]:
    names = ("available", "allocated", "reserved", "maintenance", "failed")
    return [(name, getattr(counts, name)) for name in names]


def quota(json: JsonOption = False) -> None:
    """Show use, borrowing and lending of quotas, with holders."""
    found = client_of().quotas()
    if json:
        print_json(found)
        return
    rows = []
    for one in found.quotas:
        amounts = (one.used, one.guaranteed, one.maximum, one.borrowed, one.lent)
        shown = ["" if amount is None else format_resource(one.resource, amount) for amount in amounts]
        mark = f"{one.percent} %" + (" of guaranteed" if one.maximum is None else " !" if one.level >= 95 else "")
        alert = f"{one.alerted} % {format_time(one.alerted_ms)}" if one.alerted else ""
        rows.append((f"{one.kind} {one.name}", one.resource, *shown, mark, alert))
    columns = ("of", "resource", "used", "guaranteed", "max", "borrowed", "lent", "reached", "alert")
    drop = ("alert", "lent", "borrowed", "guaranteed")
    none = "no quotas are declared: max and guaranteed of queues, max of tenants"
    Console().print(
        table(columns, rows, right=columns[2:-1], drop=drop, of=found.quotas, kind=QuotaRow, key="name", empty=none)
    )
    held = [
        (one.tenant, one.user or "-", one.queue, one.resource, format_resource(one.resource, one.used), str(one.jobs))
        for one in found.holders
    ]
    if held:
        holders = ("tenant", "user", "queue", "resource", "holds", "jobs")
        Console().print(table(holders, held, right=("holds", "jobs"), drop=("jobs", "queue")))
