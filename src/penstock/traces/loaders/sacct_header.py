"""The columns of `sacct`: by a header in any letter case, or without one in the order of the documented command.

Source of the names: https://slurm.schedmd.com/sacct.html, Job Accounting Fields.
"""

from collections.abc import Sequence

from penstock.formats.numbers import moment_ms
from penstock.traces.loaders.slurm_amounts import SHAPE_COLUMNS

ORDER = (
    "JobID", "User", "Account", "Partition", "QOS", "Submit", "Start", "End", "Elapsed", "State", "Timelimit",
    "AllocTRES", "NNodes", "Priority",
)  # fmt: skip
"""Columns of the command in docs/traces.md and docs/import.md, in its order."""
COMMAND = f"sacct -a -P -S now-90days -o {','.join(ORDER)}"
REQUIRED = ("Submit", "Start", "End")
OTHER_COLUMNS = (
    "Timelimit", "TimelimitRaw", "Cluster", "User", "Account", "Partition", "QOS", "State", "Priority"
)  # fmt: skip
IDENTITIES = ("JobID", "JobIDRaw")
UNKNOWN = frozenset({"", "Unknown", "None", "N/A"})
NO_HEADER = f"the source has no header: its columns count as {', '.join(ORDER)}"
_SPELLED = {name.lower(): name for name in (*ORDER, *IDENTITIES, *OTHER_COLUMNS, *SHAPE_COLUMNS, "ElapsedRaw")}


def read_header(fields: Sequence[str]) -> tuple[list[str], bool]:
    """Return the names of the columns, and whether the first line is a row already; other files' as they are."""
    if is_header(fields) or not _is_row(fields):
        return [_SPELLED.get(field.strip().lower(), field.strip()) for field in fields], False
    return list(ORDER), True


def is_sacct(line: str) -> bool:
    """Return whether a first line is a header of `sacct`, or a row of the documented command."""
    fields = line.split("|")
    return len(fields) > 1 and (is_header(fields) or _is_row(fields))


def is_header(fields: Sequence[str]) -> bool:
    return any(_SPELLED.get(field.strip().lower()) in IDENTITIES for field in fields)


def hint_for(line: str) -> str:
    """Return what to do with a file that begins with this line; empty when it does not look like one of `sacct`."""
    if "|" in line:
        return f"if it is from sacct (--kind sacct), it needs a header, or these columns in this order: {COMMAND}"
    if is_header(line.replace(",", " ").split()):
        return f"this looks like sacct without -P, which divides its columns by |: {COMMAND}"
    return ""


def _is_row(fields: Sequence[str]) -> bool:
    """Return whether a row has the columns of `ORDER`: as many, a job's number first, and times where they are due."""
    row = fields[:-1] if len(fields) == len(ORDER) + 1 and not fields[-1].strip() else fields
    if len(row) != len(ORDER) or not row[0][:1].isdigit():
        return False
    cells = dict(zip(ORDER, row, strict=True))
    return all(cells[name] in UNKNOWN or _is_time(cells[name]) for name in REQUIRED) and _is_time(cells["Submit"])


def _is_time(text: str) -> bool:
    try:
        moment_ms(text)
    except ValueError:
        return False
    return True
