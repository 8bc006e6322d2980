"""Detects the kind of a trace file, and loads any kind."""

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

from penstock.core.model.errors import nearest
from penstock.formats.files import lines_by_block
from penstock.traces.errors import TraceError, TracePlace
from penstock.traces.loaders import (
    acme,
    gavel,
    helios,
    openb,
    philly,
    plain,
    pollux,
    sacct,
    sacct_header,
    swf,
    tiresias,
)
from penstock.traces.model import Trace
from penstock.traces.nodes import NodeGroup

PLAIN = "the plain csv: submit, run, devices (docs/traces.md)"
LINES_LOOKED_AT = 1_000_000
"""Largest number of comment lines before a header."""

KINDS: dict[str, Callable[[Path, Sequence[NodeGroup]], Trace]] = {
    "acme": acme.read,
    "csv": plain.read,
    "gavel": gavel.read,
    "helios": helios.read,
    "openb": openb.read,
    "philly": philly.read,
    "pollux": pollux.read,
    "sacct": sacct.read,
    "swf": swf.read,
    "tiresias": tiresias.read,
}

_MARKS: tuple[tuple[str, frozenset[str]], ...] = (
    ("helios", frozenset({"job_id", "arrival_s", "service_sec", "gpu_count"})),
    ("helios", frozenset({"job_id", "vc", "gpu_num", "submit_time", "duration"})),
    ("acme", frozenset({"arrival_time", "num_iteration", "gpu_workers"})),
    ("acme", frozenset({"job_id", "gpu_num", "type", "submit_time", "duration"})),
    ("philly", frozenset({"timestamp", "duration", "num_gpus", "cluster"})),
    ("openb", frozenset({"name", "cpu_milli", "num_gpu", "gpu_milli"})),
    ("pollux", frozenset({"name", "time", "application", "num_replicas"})),
    ("gavel", frozenset({"job_type", "total_steps", "scale_factor"})),
    ("tiresias", frozenset({"job_id", "num_gpu", "submit_time", "model_name"})),
    ("csv", frozenset({"submit", "run"})),
)
"""Columns that identify a kind, in the order in which they are tried."""

_BESIDE: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"sn", "cpu_milli", "gpu"}), "this is a node list of openb: name the pod list beside it"),
    (frozenset({"vc", "node num"}), "these are the nodes of Philly's virtual clusters: name the job list beside it"),
    (frozenset({"num_switch", "num_gpu_p_node"}), "this describes a cluster of Tiresias: name the job list beside it"),
    (frozenset({"placement", "step_time"}), "this is a profile of Pollux: name a file of the folder workloads"),
    (frozenset({"gpu", "job_type", "steps_per_s"}), "this is a throughput table of Gavel: name a trace beside it"),
)


def load(path: Path, kind: str | None = None, nodes: Sequence[NodeGroup] = ()) -> Trace:
    """Return the trace in a file, plain or gzip: same bytes, same trace.

    Args:
        kind: one of `KINDS`; None detects it from the first lines.
        nodes: a cluster instead of the source's. A job whose source leaves its shape open then takes whole nodes of it.
    Raises: TraceError with file, line and column of the fault; nothing of the file is kept then.
    """
    if kind is None:
        kind = detect(path)
    if kind not in KINDS:
        expected = "one of " + ", ".join(KINDS)
        raise TraceError(str(path), column="kind", found=kind, expected=expected, hint=nearest(kind, KINDS))
    return KINDS[kind](path, nodes)


def detect(path: Path) -> str:
    """Return the kind of trace in a file by its first line that is no comment. Raises: TraceError if it has none."""
    line = _first(path)
    if line.lstrip().startswith(";"):
        return "swf"
    if line.lstrip()[:1] in ("[", "{"):
        return "philly"
    names = {name.strip().strip('"') for name in line.split(",")}
    for kind, marks in _MARKS:
        if marks <= names:
            return kind
    if sacct_header.is_sacct(line):
        return "sacct"
    if len(line.split()) == len(swf.FIELDS) and all(_is_number(word) for word in line.split()):
        return "swf"
    raise TraceError(str(path), found=line, expected="a header of " + ", ".join(KINDS), hint=_hint(line, names))


def _first(path: Path) -> str:
    looked = 0
    for lines in lines_by_block(path, TracePlace):
        for line in islice(lines, LINES_LOOKED_AT):
            looked += 1
            if line.strip() and not line.startswith("#"):
                return line
        if looked >= LINES_LOOKED_AT:
            break
    raise TraceError(str(path), found="nothing", expected="a trace with a header line")


def _is_number(word: str) -> bool:
    return word.isascii() and word.removeprefix("-").replace(".", "", 1).isdigit()


def _hint(line: str, names: set[str]) -> str:
    for marks, said in _BESIDE:
        if marks <= names:
            return said
    share, kind = max((len(marks & names) / len(marks), kind) for kind, marks in _MARKS)
    missing = next(
        sorted(marks - names) for k, marks in _MARKS if k == kind and len(marks & names) / len(marks) == share
    )
    if share >= 0.5:
        return f"nearest to kind '{kind}', which needs also: {', '.join(missing)}"
    return sacct_header.hint_for(line) or f"say its kind, --kind {'|'.join(KINDS)}, or bring it as {PLAIN}"
