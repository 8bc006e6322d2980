"""Logs of clusters with whole nodes of eight devices, one job a row with its submit, start and end: Helios and Acme."""

from collections.abc import Callable, Sequence

from penstock.core.model.jobs import GangAsk, JobSpec
from penstock.core.model.resources import Resources
from penstock.traces.loaders.build import ENDINGS, NO_END, NO_START, Builder
from penstock.traces.loaders.shapes import CLIPPED, DEVICES_MAX, Width, clipped, gang
from penstock.traces.loaders.table import TextTable
from penstock.traces.model import Seen

WIDTH = 8
"""Devices of a node."""
CPUS_MAX = 480_000
"""CPUs of one job: as many nodes as a job may have replicas, at the smallest nodes here."""
NEVER = frozenset({"", "None", "NaT", "nan", "Unknown"})
Asked = tuple[int, int, str]
"""Devices, CPUs, and the word in the source's own column, such as its virtual cluster."""


def read_rows(
    table: TextTable, builder: Builder, columns: Sequence[str], request: Callable[[Builder, Asked], JobSpec]
) -> None:
    """Take in every job that started and ran.

    Args:
        columns: names of job, user, devices, CPUs, the source's own word, state, submit, start, end and duration.
        request: makes a spec from the amounts asked for; called once for jobs that are alike.
    """
    job, user, gpu, cpu, word, state, submit, start, end, duration = table.columns(*columns)
    for row in table.rows():
        submit_ms = table.moment_ms(row, submit)
        ends = ENDINGS[table.word(row, state, ENDINGS)]
        asked = (table.whole(row, gpu, high=DEVICES_MAX), table.whole(row, cpu, high=CPUS_MAX), row[word])
        if row[start] in NEVER or row[end] in NEVER:
            builder.count(NO_START if row[start] in NEVER else NO_END)
            continue
        run_ms = table.length_ms(row, duration)
        seen = Seen(table.moment_ms(row, start), table.moment_ms(row, end))
        builder.ran(row[job], submit_ms, run_ms, asked, request, ends=ends, user=row[user], seen=seen)


def with_cpus(builder: Builder, devices: int, cpus: int, width: Width) -> GangAsk:
    """Return whole nodes and a remainder with their part of the CPUs, at most what their nodes have."""
    host = Resources(1000 * cpus)
    fitting = clipped(host, devices, width.devices, width.host)
    if fitting != host:
        builder.count(CLIPPED)
    return gang(devices, width.devices, fitting)


def devices_only(width: Width) -> Callable[[Builder, int], JobSpec]:
    """Return what makes the spec of a job that asks for a number of devices."""
    return lambda builder, devices: builder.request(gang(devices, width.devices))
