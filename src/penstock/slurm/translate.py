"""A batch job of Slurm's, as a job of ours: fields of a job file, settings for its places, and notes for the user."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.slurm import values
from penstock.slurm.arrays import ArraySpec, listed, read_array
from penstock.slurm.directives import Options
from penstock.slurm.layout import Layout, layout, mig_profile
from penstock.slurm.options import Given, Unknown
from penstock.slurm.settings import Settings
from penstock.slurm.values import Dependencies

FEATURE = "feature."
"""Before the name of a feature, in a label of nodes: as `penstock import slurm` makes it."""
MAIL = ("NONE", "BEGIN", "END", "FAIL", "REQUEUE", "ALL")
PRIORITIES = ("low", "medium", "high")


class Cluster(NamedTuple):
    """The names of the server that options may use."""

    queues: Sequence[str]
    pools: Sequence[str]
    tenants: Sequence[str]
    models: Sequence[str]
    """Of devices, as nodes name them."""
    queue: str = "default"
    """Of jobs that name none."""
    tenant: str = "default"
    features: Sequence[str] = ()
    """Names of Slurm features that nodes have as labels."""


class Translated(NamedTuple):
    fields: dict[str, Any]
    """Of a job file, without command and environment."""
    settings: Settings
    dependencies: Dependencies
    notes: list[str]
    wait: bool


def translate(options: Options, script: str, folder: str, host: str, cluster: Cluster) -> Translated:
    """Return the job that a script with these options asks for.

    Args:
        script: its file name; `wrap` or `sbatch` where there is none.
        folder: where sbatch was called.
    Raises: Unknown for an option that is refused, or a value that cannot be read.
    """
    if "begin" in options and options.get("begin") == "now":
        options = options.without("begin")
    if refusals := options.refusals():
        raise Unknown("; ".join(refusals))
    shape = layout(options)
    notes = [*options.left_out(), *shape.notes]
    where = _where(options, cluster, notes)
    array = _array(options)
    fields: dict[str, Any] = {
        "name": options.get("job-name") or script,
        "workdir": _folder(options, folder),
        **_shape(shape, cluster),
        **{field: value for field, value in where.items() if field in ("queue", "pool", "tenant", "priority")},
    }
    if array is not None:
        fields["array"] = array.ours()
    if wanted := _features(options, cluster, notes):
        fields["node_labels"] = {"wanted": wanted}
    limit = values.limit_s(options["time"]) if "time" in options else 0
    if limit:
        fields["time_limit"] = limit
    if "hold" in options:
        fields["hold"] = True
    if mail := _mail(options, notes):
        fields["notify"] = mail
    labels = {name: options.get(name) for name in ("comment", "wckey") if name in options}
    if labels:
        fields["labels"] = labels
    waits = values.dependencies(options["dependency"]) if "dependency" in options else Dependencies()
    notes += waits.notes
    settings = _settings(options, shape, where, array, script, folder, host)._replace(time_limit=limit)
    return Translated(fields, settings, waits, notes, "wait" in options)


def _folder(options: Options, folder: str) -> str:
    chosen = options.get("chdir")
    return chosen if chosen.startswith("/") else f"{folder}/{chosen}" if chosen else folder


def _array(options: Options) -> ArraySpec | None:
    if "array" not in options:
        return None
    try:
        return read_array(options.get("array"))
    except ValueError as error:
        raise values.wrong(options["array"], str(error)) from None


def _shape(shape: Layout, cluster: Cluster) -> dict[str, Any]:
    """Return the places as replicas: the first with most tasks, then those with one less as another group."""
    devices = _devices(shape, cluster)

    def part(first: int, count: int) -> dict[str, Any]:
        found: dict[str, Any] = {"replicas": count, "cpus": shape.cpus[first]}
        if shape.memory[first]:
            found["memory"] = f"{shape.memory[first]}MiB"
        return found | ({"devices": devices} if devices else {})

    sizes = list(zip(shape.cpus, shape.memory, strict=True))
    more = sizes.count(sizes[0])
    found = part(0, more)
    if more < shape.places:
        found["groups"] = [part(more, shape.places - more)]
    if shape.places > 1:
        found["topology"] = "spread"
    return found


def _devices(shape: Layout, cluster: Cluster) -> Any:
    if not shape.devices:
        return 0
    if not shape.kind:
        return shape.devices
    if profile := mig_profile(shape.kind):
        if shape.devices > 1:
            raise Unknown(f"a place has one MIG partition here, not {shape.devices} of {shape.kind}")
        return {"profile": profile}
    kind = shape.kind.lower()
    exact = [model for model in cluster.models if model.lower() == kind]
    near = exact or [model for model in cluster.models if kind in model.lower()]
    if not near:
        known = ", ".join(cluster.models) or "none"
        raise Unknown(f"no node has devices of the type {shape.kind}; there are: {known}")
    return {"count": shape.devices, "model": near}


def _where(options: Options, cluster: Cluster, notes: list[str]) -> dict[str, str]:
    """Return queue or pool, tenant, priority, and Slurm's words for them."""
    found = {"account": options.get("account", cluster.tenant), "qos": options.get("qos"), "partition": cluster.queue}
    if "partition" in options:
        names = [name for name in options.get("partition").split(",") if name]
        known = next((name for name in names if name in cluster.queues or name in cluster.pools), None)
        if known is None:
            have = ", ".join([*cluster.queues, *(pool for pool in cluster.pools if pool not in cluster.queues)])
            raise values.wrong(options["partition"], f"a queue or pool of the server: {have}")
        if len(names) > 1:
            notes.append(f"--partition={options.get('partition')}: it goes to {known}")
        found["queue" if known in cluster.queues else "pool"] = known
        found["partition"] = known
    if "account" in options:
        if found["account"] not in cluster.tenants:
            raise values.wrong(options["account"], f"a tenant of the server: {', '.join(cluster.tenants)}")
        found["tenant"] = found["account"]
    if "qos" in options:
        _quality(options["qos"], cluster, found, notes)
    return found


def _features(options: Options, cluster: Cluster, notes: list[str]) -> dict[str, str]:
    """Return the labels of nodes that `--constraint=a&b` asks for, as imported nodes have them."""
    if "constraint" not in options:
        return {}
    names = re.split(r"[&,]", options.get("constraint"))
    if all(name in cluster.features for name in names):
        return {f"{FEATURE}{name}": "true" for name in names}
    where = f"--constraint={options.get('constraint')} ({options['constraint'].where}) is left out"
    notes.append(f"{where}: only features that nodes have as labels are asked for, joined by &")
    return {}


def _quality(given: Given, cluster: Cluster, found: dict[str, str], notes: list[str]) -> None:
    if given.value in PRIORITIES:
        found["priority"] = given.value
    elif given.value in cluster.queues and "queue" not in found:
        found["queue"] = given.value
    elif given.value != "normal":
        notes.append(f"--qos={given.value} ({given.where}) is left out: it names neither a priority nor a free queue")


def _mail(options: Options, notes: list[str]) -> list[str]:
    asked = [word.strip().upper() for word in options.get("mail-type").split(",") if word.strip()]
    if others := [word for word in asked if word not in MAIL]:
        notes.append(f"--mail-type={','.join(others)} is left out: messages are sent for {', '.join(MAIL[1:-1])}")
    return [word for word in asked if word in MAIL]


def _settings(
    options: Options,
    shape: Layout,
    where: Mapping[str, str],
    array: ArraySpec | None,
    script: str,
    folder: str,
    host: str,
) -> Settings:
    def number(name: str) -> int:
        return values.count(options[name]) if name in options else 0

    def mebibytes(name: str) -> int:
        return values.mebibytes(options[name]) if name in options else 0

    mode = options.get("open-mode")
    if mode not in ("", "append", "a", "truncate", "t"):
        raise values.wrong(options["open-mode"], "append or truncate")
    found = Settings(
        script=script,
        nodes=shape.places,
        ntasks=number("ntasks") or (sum(shape.tasks) if "ntasks-per-gpu" in options else 0),
        tasks=",".join(map(str, shape.tasks)),
        cpus=",".join(map(str, shape.cpus)),
        ntasks_per_node=number("ntasks-per-node"),
        cpus_per_task=number("cpus-per-task"),
        mem_per_node=mebibytes("mem"),
        mem_per_cpu=mebibytes("mem-per-cpu"),
        mem_per_gpu=mebibytes("mem-per-gpu"),
        gpus=options.get("gpus"),
        gpus_on_node=shape.devices,
        gpus_per_node=options.get("gpus-per-node"),
        gpus_per_task=values.gpus(options["gpus-per-task"]).number if "gpus-per-task" in options else 0,
        partition=where["partition"],
        account=where["account"],
        qos=where.get("qos", "") or "normal",
        output=options.get("output"),
        error=options.get("error"),
        input=options.get("input"),
        append=int(mode in ("append", "a")),
        export=options.get("export"),
        signal=values.warning(options["signal"]) if "signal" in options else "",
        no_requeue=int("no-requeue" in options),
        submit_dir=folder,
        submit_host=host,
        comment=options.get("comment"),
    )
    if array is None:
        return found
    return found._replace(
        array="" if array.is_series else listed(array.indexes),
        array_min=array.indexes[0],
        array_max=array.indexes[-1],
        array_step=array.step,
        array_count=len(array.indexes),
        array_at_once=array.parallel,
    )


def exported(export: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that go with a job: all, or those that `--export` names. Our own credentials never do."""
    inside = "SLURM_JOB_ID" in environment  # what another job was given means nothing in this one
    dropped = ("SLURM_", "PENSTOCK_BATCH_") if inside else ("PENSTOCK_BATCH_",)
    own = {
        name: value for name, value in environment.items() if name != "PENSTOCK_TOKEN" and not name.startswith(dropped)
    }
    words = [word for word in export.split(",") if word]
    if not words or words[0].upper() == "ALL":
        found = own
    else:
        found = {name: value for name, value in own.items() if name.startswith("SLURM_")}
    for word in words:
        name, given, value = word.partition("=")
        if given:
            found[name] = value
        elif name in own and name.upper() not in ("ALL", "NONE", "NIL"):
            found[name] = own[name]
    return found
