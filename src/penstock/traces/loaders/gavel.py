"""Gavel: jobs as steps of a model, with measured throughput of each model on three types of GPU.

Source of the format: https://github.com/stanford-futuredata/gavel scheduler/ (throughput tables, traces; here as CSV).
Narayanan et al., OSDI 2020.
"""

from collections.abc import Sequence
from pathlib import Path

from penstock.core.model.cluster import NodeSpec
from penstock.core.model.jobs import JobSpec
from penstock.core.model.resources import Resources
from penstock.formats.files import from_json, whole_file
from penstock.formats.numbers import RUN_MAX_MS
from penstock.traces.errors import TraceError, TracePlace
from penstock.traces.loaders.build import NO_LENGTH, Builder
from penstock.traces.loaders.shapes import DEVICES_MAX, NODES_MAX, equal_nodes, gang, widest
from penstock.traces.loaders.table import TextTable, beside
from penstock.traces.model import Trace, Work
from penstock.traces.nodes import NodeGroup

WIDTH = 4
TYPES = ("v100", "p100", "k80")
"""In the order of the cluster descriptions (`300:300:300`)."""
PHYSICAL = (8, 16, 24)
STEPS_MAX = 10**15
COLUMNS = ("job_type", "total_steps", "arrival_s", "scale_factor")
TABLES = ("simulation_throughputs.json", "physical_cluster_throughputs.json")
CLUSTERS = ("cluster_specs_heterogeneous.json", "cluster_specs.json")
RATE_MAX = 1e12
UNMEASURED = "jobs have a number of devices that was not measured: steps a second grow in proportion to it"

Rates = dict[str, dict[int, tuple[float, ...]]]
"""Steps a second on each of `TYPES`, by model and number of devices; 0 where it does not run."""
Throughputs = dict[str, dict[str, dict[str, float | list[float]]]]


def read(path: Path, given: Sequence[NodeGroup] = ()) -> Trace:
    """Return the jobs; run time is that on the fastest type, `Work.speeds` says how fast the others are against it.

    A throughput table (`simulation_throughputs.json`, or that of the physical cluster) must lie in the file's folder
    or the one above it. Virtual clusters, or the several traces of one file, are queues and tenants.
    Raises: TraceError.
    """
    table, builder = TextTable(path), Builder(path, given)
    kind, steps, arrival, scale = table.columns(*COLUMNS)
    group = max(table.optional("vc"), table.optional("trace"))
    rates = _rates(path, builder)
    nodes = builder.cluster(lambda: _nodes(path, builder))
    width = widest(nodes).devices
    works: dict[tuple[str, int, int], Work] = {}
    for row in table.rows():
        submit_ms = table.offset_ms(row, arrival)
        table.word(row, kind, rates)
        size = table.whole(row, scale, low=1, high=DEVICES_MAX)
        key = (row[kind], size, table.whole(row, steps, high=STEPS_MAX))
        if key[2] == 0:
            builder.count(NO_LENGTH)
            continue
        if size not in rates[key[0]]:
            builder.count(UNMEASURED)
        if key not in works:
            works[key] = _work(table, rates[key[0]], size, key[2])
        words = row[group] if group >= 0 else ""
        able = tuple(model for model, speed in works[key].speeds)
        spec = builder.spec((key[0], size, words, able), _request, builder, key, width, words, able)
        builder.add(str(table.line - 1), submit_ms, spec, works[key])
    builder.note("jobs have no id in the source: they are named by their row; the source has no users")
    return builder.trace(nodes)


def _request(builder: Builder, key: tuple[str, int, int], width: int, words: str, able: tuple[str, ...]) -> JobSpec:
    models = able if len(able) < len(TYPES) else ()
    return builder.request(gang(key[1], width, models=models), words, words, name=key[0])


def _work(table: TextTable, rates: dict[int, tuple[float, ...]], size: int, steps: int) -> Work:
    known = max((count for count in rates if count <= size), default=min(rates))
    found = [rate * size / known if size not in rates else rate for rate in rates[known]]
    best = max(found)
    run_ms = round(1000 * steps / best)
    if not 0 < run_ms <= RUN_MAX_MS:
        raise table.fault("total_steps", str(steps), "steps that take a millisecond to a hundred years")
    speeds = [(model, max(1, round(1000 * rate / best))) for model, rate in zip(TYPES, found, strict=True) if rate]
    return Work(run_ms, speeds=tuple(sorted(speeds)), saves=True)


def _rates(path: Path, builder: Builder) -> Rates:
    names = TABLES[::-1] if "physical" in path.name else TABLES
    file = beside(path, names) or beside(path.parent, names)
    if file is None:
        expected = "a throughput table in its folder or the one above: " + " or ".join(names)
        raise TraceError(str(path), found="none", expected=expected)
    expected = "a JSON object of throughputs by type of GPU, model and partner"
    raw = from_json(whole_file(file, TracePlace), Throughputs, TracePlace(str(file)), expected)
    found: Rates = {}
    for at, model in enumerate(TYPES):
        if model not in raw:
            raise TraceError(str(file), found=", ".join(raw), expected=f"throughputs of type {model}")
        for key, partners in raw[model].items():
            name, size = _key(file, key)
            rate = partners.get("null", 0.0)
            if not isinstance(rate, float | int) or not 0 <= rate <= RATE_MAX:
                raise TraceError(str(file), column=key, found=str(rate), expected="steps a second from 0")
            of = found.setdefault(name, {}).get(size, (0.0,) * len(TYPES))
            found[name][size] = (*of[:at], float(rate), *of[at + 1 :])
    for sizes in found.values():
        for size in [size for size, rates in sizes.items() if max(rates) <= 0]:
            del sizes[size]
    builder.note(f"run times follow from {file.name}, on the type of GPU that is fastest for the job")
    return {name: sizes for name, sizes in found.items() if sizes}


def _key(file: Path, key: str) -> tuple[str, int]:
    """Read `('ResNet-18 (batch size 16)', 1)`."""
    name, found, size = key.removeprefix("('").removesuffix(")").rpartition("', ")
    if not found or not size.isdigit() or not size.isascii() or len(size) > 6 or not int(size):
        raise TraceError(str(file), column=key, found=key, expected="a key such as ('LM (batch size 5)', 1)")
    return name, int(size)


def _nodes(path: Path, builder: Builder) -> tuple[NodeSpec, ...]:
    counts, told = PHYSICAL, "as in the paper"
    file = beside(path, CLUSTERS)
    if "physical" not in path.name and file is not None:
        counts, told = _described(file), f"from {file.name}"
    builder.note(f"cluster: {counts[0]} V100, {counts[1]} P100, {counts[2]} K80, {told}; nodes of {WIDTH} are assumed")
    found: tuple[NodeSpec, ...] = ()
    for model, count in zip(TYPES, counts, strict=True):
        whole, rest = divmod(count, WIDTH)
        found += equal_nodes(whole, devices=WIDTH, model=model, prefix=f"{model}-", capacity=Resources(64_000))
        if rest:
            found += equal_nodes(1, devices=rest, model=model, prefix=f"{model}-rest-")
    return found


def _described(file: Path) -> tuple[int, int, int]:
    """Read `{"philly": ["300:300:300"]}`: V100, P100, K80."""
    expected = 'a cluster such as {"philly": ["300:300:300"]}'
    raw = from_json(whole_file(file, TracePlace), dict[str, list[str]], TracePlace(str(file)), expected)
    words = next((specs[0] for specs in raw.values() if specs), "")
    parts = words.split(":")
    if len(parts) != len(TYPES) or not all(p.isdigit() and p.isascii() and len(p) < 7 for p in parts):
        raise TraceError(str(file), found=words, expected=expected)
    counts = (int(parts[0]), int(parts[1]), int(parts[2]))
    if not 0 < sum(counts) <= NODES_MAX:
        raise TraceError(str(file), found=words, expected=f"1 to {NODES_MAX} devices in all")
    return counts
