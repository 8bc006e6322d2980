"""What `sbatch` is given for an attempt: amounts, nodes, and the names that its job asked for by labels."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import fields

from penstock.core.messages.orders import StartReplica
from penstock.core.model.ids import AttemptNumber, JobId, NodeName
from penstock.core.model.jobs import JobSpec
from penstock.core.model.resources import ReplicaAsk
from penstock.engines.slurm.nodes import MIB, SlurmNode
from penstock.engines.slurm.passing.spool import AttemptKey
from penstock.engines.slurm.server import JobTerms
from penstock.formats.slurm import read_gres

NAMES: Mapping[str, str] = {"slurm.account": "--account", "slurm.qos": "--qos", "slurm.partition": "--partition",
                            "slurm.reservation": "--reservation"}  # fmt: skip
"""Labels of a job, and the options that they become."""
TAG = "penstock"
COMMENT_MAX = 300
"""Of a comment: what squeue is asked for."""
INDEXES_MAX = 10_000
"""Elements of one array that are looked at: a comment may say anything."""
MARGIN_MS = 120_000
"""Slurm's limit of a job is this much longer than Penstock's, which asks it to save first."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}", re.ASCII)
_PLAIN = re.compile(r"[^A-Za-z0-9_.@-]+", re.ASCII)
_WORD = re.compile(r"[^,()]+(?:\([^()]*\))?")
KEPT = frozenset({
    "key", "incarnation", "command", "ask", "devices", "env", "world_size", "local_rank", "local_world_size",
    "node_rank", "node_names", "master_address", "master_port", "workdir", "name", "checkpoint", "grace_ms", "array_id",
    "array_index", "account", "mark", "unmarked", "workload_class",
})  # fmt: skip
"""Fields of a start that a job of Slurm keeps. Any other one that is set is a reason not to start."""


KEPT_OF_JOB = frozenset({
    "command", "ask", "name", "tenant", "queue", "priority", "preemptible", "after", "time_limit_ms",
    "estimated_duration_ms", "grace_ms", "max_wait_ms", "retries_max", "env", "workdir", "checkpoint", "labels",
    "alternatives", "on_hang", "hang_limit_ms", "secrets", "array_parallel", "preempts", "notify", "notify_to",
    "workload_class", "schedule",
})  # fmt: skip
"""Fields of a job that pass-through keeps."""
FIELD_NAMES = {"snapshot": "workdir.snapshot", "lease": "command", "object_store_bytes": "object_store"}
"""As they are called in a job file."""


class Submission(NamedTuple):
    options: tuple[str, ...]
    hosts: tuple[NodeName, ...] = ()
    """The node of each rank; () for one replica."""


def refused_job(spec: JobSpec) -> tuple[str, str] | None:
    """Return the field of a job that cannot be passed on to Slurm, and why; None where it can."""
    for field in fields(JobSpec):
        if field.name not in KEPT_OF_JOB and getattr(spec, field.name) != field.default:
            name = FIELD_NAMES.get(field.name, field.name)
            return name, f"{name} is given, which jobs that are passed on to Slurm cannot have"
    for gang in (spec.ask, *spec.alternatives):
        for each in (gang.each, *(group.each for group in gang.others)):
            if each.devices is not None and not each.devices.whole:
                return "devices", "devices is a part of one, expected whole ones for jobs that are passed on to Slurm"
            if each.host.extended:
                return "resources", "resources are given, which jobs that are passed on to Slurm cannot have"
        if gang.others:
            return "groups", "groups are given, expected replicas that are all alike for jobs passed on to Slurm"
    for label, value in spec.labels:
        if label in NAMES and _NAME.fullmatch(value) is None:
            text = f"labels.{label} is '{value[:80]}', expected a name of letters, digits and . _ @ -"
            return f"labels.{label}", text
    return None


def why_not(order: StartReplica) -> str:
    """Return why a replica cannot be a job of Slurm, or ''."""
    if order.refused:
        return order.refused
    for field in fields(StartReplica):
        if field.name not in KEPT and getattr(order, field.name) != field.default:
            return f"jobs that are passed on to Slurm have no {field.name}"
    ask = order.ask.devices
    if ask is not None and not ask.whole:
        return "jobs that are passed on to Slurm have whole devices"
    if order.ask.claimed or order.ask.host.extended:
        return "jobs that are passed on to Slurm have CPUs, memory, storage and devices alone"
    return ""


def indexes_of(elements: Sequence[Sequence[StartReplica]]) -> tuple[int, ...]:
    """Return the index of each attempt in an array of Slurm; () for one that is a job by itself.

    Jobs that are no array here are one of Slurm's where they go together.
    """
    first = elements[0][0]
    if first.array_id is not None:
        return tuple(replicas[0].array_index for replicas in elements)
    return tuple(range(len(elements))) if len(elements) > 1 else ()


def tag_of(cluster: str, elements: Sequence[Sequence[StartReplica]]) -> str:
    """Return the comment of a job: whose it is, which attempts, and which elements of an array they are.

    Each run of elements counts up by one in both numbers: `penstock:ab12:17.1` and `penstock:ab12:17.1@0-9,40.2@10-10`.
    """
    keys = [replicas[0].key for replicas in elements]
    runs: list[list[int]] = []
    for key, index in zip(keys, indexes_of(elements), strict=False):
        job, attempt, low, high = runs[-1] if runs else (0, 0, 0, 0)
        if (key.attempt, key.job_id, index) == (attempt, job + high - low + 1, high + 1):
            runs[-1][3] = index
        else:
            runs.append([key.job_id, key.attempt, index, index])
    words = [f"{job}.{attempt}@{low}-{high}" for job, attempt, low, high in runs]
    return f"{TAG}:{cluster}:{','.join(words) or f'{keys[0].job_id}.{keys[0].attempt}'}"


_RUN = re.compile(r"([1-9]\d{0,15})\.([1-9]\d{0,9})(?:@(\d{1,9})-(\d{1,9}))?", re.ASCII)


def attempt_of(comment: str, cluster: str, number: str) -> AttemptKey | None:
    """Return the attempt that a job of this comment is, None where it is none of ours.

    Args:
        number: of the job in Slurm, of an element `12_3`.
    """
    prefix = f"{TAG}:{cluster}:"
    if not comment.startswith(prefix):
        return None
    index = number.partition("_")[2]
    element = int(index) if index.isdecimal() else -1
    for word in comment.removeprefix(prefix).split(","):
        run = _RUN.fullmatch(word)
        if run is None:
            return None
        if run[3] is None and element < 0:
            return AttemptKey(int(run[1]), int(run[2]))  # type: ignore[arg-type]
        if run[3] is not None and int(run[3]) <= element <= int(run[4]):
            return AttemptKey(int(run[1]) + element - int(run[3]), int(run[2]))  # type: ignore[arg-type]
    return None


def attempts_of(comment: str, cluster: str) -> Iterator[tuple[AttemptKey, int]]:
    """Yield all attempts that the array of this comment was made of, each with its index; none for another job."""
    prefix = f"{TAG}:{cluster}:"
    words = comment.removeprefix(prefix).split(",") if comment.startswith(prefix) else []
    for run in map(_RUN.fullmatch, words):
        if run is not None and run[3] is not None:
            low, high = int(run[3]), int(run[4])
            for index in range(low, min(high, low + INDEXES_MAX) + 1):
                yield AttemptKey(JobId(int(run[1]) + index - low), AttemptNumber(int(run[2]))), index


def submission(
    elements: Sequence[Sequence[StartReplica]], terms: JobTerms, nodes: Mapping[NodeName, SlurmNode], cluster: str
) -> Submission:
    """Return what sbatch is given. Raises: ValueError for what it cannot be given."""
    replicas = elements[0]
    first = replicas[0]
    names = tuple(NodeName(name) for name in first.node_names)
    gang = len(replicas) > 1
    options = [
        f"--job-name={_PLAIN.sub('_', first.name)[:60] or TAG}",
        f"--comment={tag_of(cluster, elements)}",
        "--output=/dev/null", "--chdir=/", "--no-requeue", "--export=ALL",
        f"--nodelist={','.join(names)}", f"--nodes={len(names)}", f"--ntasks={len(replicas)}",
        *_amounts(first.ask, [nodes[name] for name in names], gang=gang),
    ]  # fmt: skip
    if first.devices:
        word, device = ("--gpus-per-task", "") if gang else ("--gres", "gpu:")
        kind = _kind(first, nodes[names[0]])
        options.append(f"{word}={device}{kind}{len(first.devices)}")
    if terms.time_limit_ms:
        options.append(f"--time={-(-(terms.time_limit_ms + first.grace_ms + MARGIN_MS) // 60_000)}")
    options += _names(terms.labels, [nodes[name] for name in names])
    if indexes := indexes_of(elements):
        options.append(f"--array={','.join(map(str, indexes))}")
    if first.account:
        options.append(f"--uid={first.account}")
    if gang:
        options.append("--distribution=arbitrary")
    hosts = tuple(NodeName(one.node_names[one.node_rank]) for one in replicas) if gang else ()
    return Submission(tuple(options), hosts)


def _amounts(ask: ReplicaAsk, nodes: Sequence[SlurmNode], *, gang: bool) -> list[str]:
    """Return CPUs and memory of each task: whole CPUs, and a memory that was not named in proportion to them."""
    cpus = max(1, -(-ask.host.cpu_milli // 1000))
    asked = -(-ask.host.memory_bytes // MIB)
    share = min(node.memory_bytes // MIB // max(1, node.cpus) for node in nodes)
    options = [f"--cpus-per-task={cpus}"]
    if not asked:
        options.append(f"--mem-per-cpu={max(1, share)}")
    elif gang:
        options.append(f"--mem-per-cpu={-(-asked // cpus)}")
    else:
        options.append(f"--mem={asked}")
    if ask.host.storage_bytes:
        options.append(f"--tmp={-(-ask.host.storage_bytes // MIB)}")
    return options


def _kind(order: StartReplica, node: SlurmNode) -> str:
    """Return `TYPE:` of the devices that a replica was given, '' where its node has one type alone."""
    kinds: list[str] = []
    for word in _WORD.findall(node.gres):
        gres = read_gres(word.strip())
        if gres is not None and gres.name == "gpu":
            kinds += [gres.kind or ""] * gres.count
    given = {kinds[index] for index in order.devices if index < len(kinds)}
    if len(set(kinds)) < 2 or len(given) != 1:
        return ""
    kind = next(iter(given))
    return f"{kind}:" if kind else ""


def _names(labels: Mapping[str, str], nodes: Sequence[SlurmNode]) -> list[str]:
    """Return the options of a job's labels; the partition is one that has all its nodes where none is named."""
    found = []
    for label, option in NAMES.items():
        value = labels.get(label, "")
        if not value:
            continue
        if _NAME.fullmatch(value) is None:
            raise ValueError(f"label {label} is '{value[:80]}', expected a name of letters, digits and . _ @ -")
        found.append(f"{option}={value}")
    if not labels.get("slurm.partition"):
        common = [name for name in nodes[0].partitions if all(name in node.partitions for node in nodes)]
        if not common:
            raise ValueError(f"no partition has all of {', '.join(node.name for node in nodes)}")
        found.append(f"--partition={common[0]}")
    return found
