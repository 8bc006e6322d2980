"""The command about pools: what they have, and how much of it is given out."""

from penstock.cli.options import DataOption, JsonOption, client_of
from penstock.cli.output import Console, print_json, say, table


def pools(data: DataOption = None, json: JsonOption = False) -> None:
    """Show what each pool has, how much of it is given out, and the state of its devices."""
    from penstock.core.model.amounts import format_milli
    from penstock.core.model.units import format_size

    listed = client_of(data).pools()
    if json:
        print_json({"pools": listed})
        return
    rows = []
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
            )
        )
    amounts_shown = ("total", "allocated", "reserved", "available", "out", "used")
    columns = ("pool", "nodes open", *amounts_shown, "devices", "CPUs", "memory", "parts")
    if rows:
        Console().print(table(columns, rows, right=(*amounts_shown, "CPUs")))
    else:
        say("no pools are declared")


def _counts(counts: object) -> list[tuple[str, int]]:
    names = ("available", "allocated", "reserved", "maintenance", "failed")
    return [(name, getattr(counts, name)) for name in names]
