"""Columns as squeue, sinfo and sacct print them. Source: squeue(1), sinfo(1), sacct(1), "Format"."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.formats.hostlist import compressed as compressed
from penstock.slurm.options import Unknown, nearest

_LETTERS = re.compile(r"%(\.?)([0-9]{0,4})([A-Za-z])")
_NAMED = re.compile(r"([A-Za-z_-]+)(?::(\.?)([0-9]{0,4})(\.?))?")
_SACCT = re.compile(r"([A-Za-z]+)(?:%(-?)([0-9]{1,4}))?")
LONG_WIDTH = 20
"""Of a column of `-O` that names no width."""

STATES = {
    "waiting": ("PENDING", "PD"),
    "starting": ("CONFIGURING", "CF"),
    "running": ("RUNNING", "R"),
    "stopping": ("COMPLETING", "CG"),
    "suspended": ("SUSPENDED", "S"),
    "succeeded": ("COMPLETED", "CD"),
    "failed": ("FAILED", "F"),
    "cancelled": ("CANCELLED", "CA"),
}
ENDS = {"time limit": ("TIMEOUT", "TO"), "out of memory": ("OUT_OF_MEMORY", "OOM"), "node lost": ("NODE_FAIL", "NF")}
"""By words of the reason of a failed job."""
REASONS = {
    "held": "JobHeldUser",
    "dependency": "Dependency",
    "array_turn": "JobArrayTaskLimit",
    "backing_off": "BeginTime",
    "quota": "QOSGrpGRES",
    "tenant_held": "AssocGrpBillingMinutes",
    "reserved": "ReqNodeNotAvail",
    "behind": "Priority",
    "admission": "Priority",
    "expected_demand": "Priority",
    "kept_back": "Priority",
    "nodes_away": "ReqNodeNotAvail",
}
"""Why a job waits; Resources for all others."""


class Column(NamedTuple):
    field: str
    title: str
    width: int = 0
    """0: as wide as it is."""
    right: bool = False


def state_of(state: str, reason: str) -> tuple[str, str]:
    """Return Slurm's name of a state, whole and short."""
    if state == "failed":
        for words, name in ENDS.items():
            if words in reason:
                return name
    return STATES.get(state, (state.upper(), state[:2].upper()))


def by_letters(text: str, known: Mapping[str, Column]) -> list[Column | str]:
    """Return the columns of `%.18i %P`, and the texts between them. Raises: Unknown for a letter without a column."""
    found: list[Column | str] = []
    at = 0
    for match in _LETTERS.finditer(text):
        found += [text[at : match.start()]] if match.start() > at else []
        column = known.get(match[3])
        if column is None:
            raise Unknown(f"format %{match[3]} is not known here; there are {' '.join('%' + one for one in known)}")
        found.append(column._replace(width=int(match[2] or 0), right=bool(match[1])))
        at = match.end()
    return found + ([text[at:]] if at < len(text) else [])


def by_names(text: str, known: Mapping[str, Column]) -> list[Column | str]:
    """Return the columns of `JobID:10,State`. Raises: Unknown for a name without a column."""
    found: list[Column | str] = []
    for word in text.split(","):
        match = _NAMED.fullmatch(word.strip())
        column = known.get(match[1].lower()) if match else None
        if match is None or column is None:
            raise Unknown(f"there is no field '{word.strip()}' here{nearest(word.strip().lower(), known, '')}")
        width = int(match[3]) if match[3] else LONG_WIDTH
        found.append(column._replace(width=width, right=match[2] == "." or match[4] == "."))
    return found


def by_sacct(text: str, known: Mapping[str, Column]) -> list[Column]:
    """Return the columns of `JobID%30,State`. Raises: Unknown for a name without a column."""
    found = []
    for word in filter(None, (one.strip() for one in text.split(","))):
        match = _SACCT.fullmatch(word)
        column = known.get(match[1].lower()) if match else None
        if match is None or column is None:
            raise Unknown(f"there is no field '{word}' here{nearest(word.lower(), known, '')}")
        if match[3]:
            column = column._replace(width=int(match[3]), right=not match[2])
        found.append(column)
    return found


def line(columns: Sequence[Column | str], row: Mapping[str, str]) -> str:
    """Return one line; a value that is too long for its column is cut."""
    return "".join(
        column if isinstance(column, str) else fitted(row.get(column.field, ""), column) for column in columns
    )


def heading(columns: Sequence[Column | str]) -> str:
    return "".join(column if isinstance(column, str) else fitted(column.title, column) for column in columns)


def fitted(text: str, column: Column, *, mark: str = "") -> str:
    """Return a value at the width of its column; `mark` ends one that was cut."""
    if not column.width:
        return text
    if len(text) > column.width:
        text = text[: column.width - len(mark)] + mark
    return text.rjust(column.width) if column.right else text.ljust(column.width)


def clock(seconds: int) -> str:
    """Return a duration as squeue shows it: `5:03`, `1:05:03`, `2-01:05:03`."""
    minutes, second = divmod(max(0, seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}-{hour:02}:{minute:02}:{second:02}"
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


def long_clock(seconds: int) -> str:
    """Return a duration as sacct and scontrol show it: `00:05:03`, `2-01:05:03`."""
    days, rest = divmod(max(0, seconds), 86_400)
    text = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text


def _columns(text: str) -> dict[str, Column]:
    """Return columns by their letters, from lines `letter field TITLE`."""
    parts = (each.split() for each in text.strip().splitlines())
    return {letter: Column(field, title.replace("_", " ")) for letter, field, title in parts}


SQUEUE = _columns("""
i id JOBID
A number JOBID
F array_job ARRAY_JOB_ID
K array_task ARRAY_TASK_ID
a account ACCOUNT
b gres TRES_PER_NODE
c cpus_per_task MIN_CPUS
C cpus CPUS
D nodes NODES
e end END_TIME
g user GROUP
j name NAME
k comment COMMENT
l limit TIME_LIMIT
L left TIME_LEFT
m memory MIN_MEMORY
M elapsed TIME
N nodelist NODELIST
o command COMMAND
p priority PRIORITY
P partition PARTITION
q qos QOS
Q priority PRIORITY
r reason REASON
R where NODELIST(REASON)
S start START_TIME
t short ST
T state STATE
u user USER
V submit SUBMIT_TIME
w wckey WCKEY
Z workdir WORK_DIR
""")
SQUEUE_NAMES = {
    "account": SQUEUE["a"], "arrayjobid": SQUEUE["F"], "arraytaskid": SQUEUE["K"], "command": SQUEUE["o"],
    "comment": SQUEUE["k"], "endtime": SQUEUE["e"], "jobarrayid": SQUEUE["i"], "jobid": SQUEUE["A"],
    "minmemory": SQUEUE["m"], "name": SQUEUE["j"], "nodelist": SQUEUE["N"], "numcpus": SQUEUE["C"],
    "numnodes": SQUEUE["D"], "partition": SQUEUE["P"], "priority": SQUEUE["Q"], "prioritylong": SQUEUE["Q"],
    "qos": SQUEUE["q"], "reason": SQUEUE["r"], "reasonlist": SQUEUE["R"], "starttime": SQUEUE["S"],
    "state": SQUEUE["T"], "statecompact": SQUEUE["t"], "submittime": SQUEUE["V"], "timeleft": SQUEUE["L"],
    "timelimit": SQUEUE["l"], "timeused": SQUEUE["M"], "tres-per-node": SQUEUE["b"], "username": SQUEUE["u"],
    "wckey": SQUEUE["w"], "workdir": SQUEUE["Z"], "numtasks": Column("tasks", "TASKS"),
    "stdout": Column("stdout", "STDOUT"),
    "stderr": Column("stderr", "STDERR"), "exit_code": Column("exit", "EXIT_CODE"),
}  # fmt: skip
SQUEUE_DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
SQUEUE_LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
SQUEUE_START = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20N %R"
SINFO = _columns("""
P partition PARTITION
R pool PARTITION
a avail AVAIL
c cpus CPUS
C cpus_aiot CPUS(A/I/O/T)
D nodes NODES
A nodes_ai NODES(A/I)
F nodes_aiot NODES(A/I/O/T)
E reason REASON
f features AVAIL_FEATURES
G gres GRES
l limit TIMELIMIT
m memory MEMORY
N nodelist NODELIST
n hosts HOSTNAMES
t short STATE
T state STATE
""")
SINFO_DEFAULT = "%9P %.5a %.10l %.6D %.6t %N"
SINFO_NODES = "%N %.6D %.9P %.6t"
SINFO_LONG = "%9P %.5a %.10l %.6D %.11T %.6c %.8m %G %E %N"
SINFO_SUMMARY = "%9P %.5a %.10l %.16F %N"


def _accounting(text: str) -> dict[str, Column]:
    """Return columns of sacct by their names in small letters, from lines `Title field width`."""
    parts = (each.split() for each in text.strip().splitlines())
    return {title.lower(): Column(field, title, int(width), right=width[0] != "-") for title, field, width in parts}


SACCT = _accounting("""
JobID id 12
JobIDRaw number 12
JobName name 10
Partition partition 10
Account account 10
AllocCPUS cpus 10
AllocNodes nodes 10
AllocTRES tres 10
AveCPU cpu_time 10
Comment comment 14
CPUTimeRAW cpu_seconds 10
DerivedExitCode exit 15
Elapsed elapsed_long 10
ElapsedRaw elapsed_s 10
Eligible submit 19
End end 19
ExitCode exit 8
Group user 9
NCPUS cpus 10
NNodes nodes 8
NodeList nodelist 15
NTasks tasks 8
Priority priority 10
QOS qos 10
ReqCPUS cpus 8
ReqMem memory 10
ReqNodes nodes 8
ReqTRES tres 10
Start start 19
State state 10
Submit submit 19
Timelimit limit_long 10
TimelimitRaw limit_minutes 12
TotalCPU cpu_time 10
UID uid 6
User user 9
WCKey wckey 10
WorkDir workdir 20
""")
SACCT["jobid"] = SACCT["jobid"]._replace(right=False)
SACCT_DEFAULT = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
SACCT_BRIEF = "JobID,State,ExitCode"
