"""Pollux workloads: jobs with the size and batch that their users tuned, and how fast they are at other sizes.

Source of the format: https://github.com/petuum/adaptdl branch osdi21-artifact, simulator/. Qiao et al., OSDI 2021.
"""

from collections.abc import Sequence
from pathlib import Path

from penstock.core.model.cluster import NodeSpec
from penstock.core.model.jobs import GangAsk, JobSpec
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.formats.numbers import RUN_MAX_MS
from penstock.traces.errors import TraceError
from penstock.traces.loaders.build import Builder
from penstock.traces.loaders.shapes import equal_nodes
from penstock.traces.loaders.table import TextTable
from penstock.traces.model import Trace, Work
from penstock.traces.nodes import NodeGroup
from penstock.traces.profiles import NODE_DEVICES, REPLICAS_TRIED, TraceProfile, read_profile
from penstock.traces.training import Training

NODES = 16
COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")
BATCH_MAX = 10**9
APPLICATIONS_MAX = 64
PINNED = frozenset({"ncf"})
"""The published runs give this application one device and its largest batch, under any policy."""


def read(path: Path, given: Sequence[NodeGroup] = ()) -> Trace:
    """Return the jobs at their tuned size, elastic upwards; the folder `profiles` lies beside the file's or above it.

    Run time is that of the tuned size and batch on whole nodes. `Work.scaling` is at the same global batch size;
    `Work.trains` is as fast as it was measured at each placement. `traces.asking` lets them ask otherwise.
    Raises: TraceError.
    """
    table, builder = TextTable(path), Builder(path, given)
    name, time, application, replicas, batch = table.columns(*COLUMNS)
    folder = _profiles(path)
    profiles: dict[str, TraceProfile] = {}
    works: dict[tuple[str, int, int], Work] = {}
    for row in table.rows():
        submit_ms = table.offset_ms(row, time)
        size = table.whole(row, replicas, low=1, high=REPLICAS_TRIED[-1])
        key = (row[application], size, table.whole(row, batch, low=1, high=BATCH_MAX))
        if key not in works:
            if key[0] not in profiles:
                profiles[key[0]] = read_profile(_folder_of(table, row[application], folder))
            works[key] = _work(table, profiles[key[0]], size, key[2])
        work = works[key]
        spec = builder.spec(key, _request, builder, key, work)
        builder.add(row[name], submit_ms, spec, work)
    builder.note("run times follow from the measured profiles at the tuned size and batch, on whole nodes")
    return builder.trace(builder.cluster(lambda: _nodes(builder)))


def _nodes(builder: Builder) -> tuple[NodeSpec, ...]:
    builder.note(f"cluster: {NODES} nodes x {NODE_DEVICES} T4, as in the paper; the file names none")
    return equal_nodes(NODES, devices=NODE_DEVICES, model="T4")


def _profiles(path: Path) -> Path:
    for folder in (path.parent / "profiles", path.parent.parent / "profiles"):
        if folder.is_dir():
            return folder
    expected = "a folder 'profiles' beside the workload's folder"
    raise TraceError(str(path), found="none", expected=expected, hint="it comes with the workloads")


def _folder_of(table: TextTable, application: str, folder: Path) -> Path:
    try:
        known = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())[:APPLICATIONS_MAX]
    except OSError as problem:
        said = problem.strerror or "nothing"
        raise TraceError(str(folder), found=said, expected="a folder with a profile for each application") from None
    if application not in known:
        raise table.fault("application", application, "one of " + ", ".join(known))
    return folder / application


def _work(table: TextTable, profile: TraceProfile, size: int, batch: int) -> Work:
    low, high = profile.batches
    if not low <= batch <= high:
        raise table.fault("batch_size", str(batch), f"{low} to {high}, as the profile of {profile.name} has it")
    step_s = profile.step_s(size, batch)
    if step_s is None:
        expected = f"a size that the profile of {profile.name} has at batch {batch}"
        raise table.fault("num_replicas", str(size), expected)
    run_s = profile.steps(batch) * step_s
    if not 0.001 <= run_s <= RUN_MAX_MS / 1000:
        raise table.fault("batch_size", f"{run_s:.3g} s of training", "a training of at most a hundred years")
    alone_s = profile.step_s(1, batch)
    points: list[tuple[int, int]] = []
    if alone_s is not None and profile.name not in PINNED:
        for count in REPLICAS_TRIED:
            found = profile.step_s(count, batch)
            if found is not None:
                points.append((count, max(1, round(1000 * alone_s / found))))
    trains = Training(profile, size, batch, fixed=True)
    return Work(trains.run_ms, scaling=tuple(points), saves=True, trains=trains)


def _request(builder: Builder, key: tuple[str, int, int], work: Work) -> JobSpec:
    application, size, batch = key
    largest = work.scaling[-1][0] if work.scaling else size
    each = ReplicaAsk(Resources(), DeviceAsk(1))
    ask = GangAsk(size, each, replicas_max=largest if largest > size else 0)
    return builder.request(ask, name=application, label=("batch_size", str(batch)))
