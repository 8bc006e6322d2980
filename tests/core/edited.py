"""Applies an edit to the real thing, apart from the code that proposed it: the job's request, or the cluster.

Values of requests go through the reader of job files, so an edit can be written there as it stands.
"""

from msgspec.structs import replace

from penstock.core.config.job import parse_job
from penstock.core.config.queues import quota as quota_field
from penstock.core.config.reader import Reader
from penstock.core.cycle.planner import plan
from penstock.core.explain import Edit
from penstock.core.model.events import ConfigChanged
from penstock.core.model.jobs import GangAsk, JobSpec
from penstock.core.model.plan import Plan
from penstock.core.state.snapshot import take_snapshot
from penstock.core.state.state import State
from penstock.testing.harness import World

DEVICE_FIELDS = {
    "count": "count",
    "share": "share_milli",
    "memory_limit": "share_memory_bytes",
    "profile": "profile",
    "model": "models",
    "memory": "memory_min_bytes",
    "capability": "capability_min",
    "vendor": "vendor",
    "link": "link",
}
HOST_FIELDS = {"cpus": "cpu_milli", "memory": "memory_bytes", "storage": "storage_bytes", "bandwidth": "bandwidth_bps"}


def planned(w: World, job_id: int, edit: Edit, value=None) -> tuple[bool, tuple[int, ...]]:
    """Return whether a fresh plan of the whole starts the job after the edit, and who is asked to leave for it.

    `value` takes the place of what the edit proposes.
    """
    changed = edit if value is None else replace(edit, new=value)
    found = _of_request(w, job_id, changed) if edit.kind == "request" else _of_cluster(w, changed)
    victims = tuple(sorted(p.victim for p in found.preemptions if p.beneficiary == job_id))
    return any(s.job_id == job_id for s in found.starts), victims


def _of_request(w: World, job_id: int, edit: Edit) -> Plan:
    image = w.state.image()
    image = replace(image, jobs=[_with(j, edit) if j.id == job_id else j for j in image.jobs])
    return plan(take_snapshot(State.from_image(image)), w.now)


def _with(job, edit: Edit):
    return replace(job, spec=edited_spec(job.spec, edit))


def edited_spec(spec: JobSpec, edit: Edit) -> JobSpec:
    head, _, rest = edit.path.partition(".")
    if edit.path.startswith("alternatives["):
        number = int(edit.path[13:-1])
        return replace(spec, ask=spec.alternatives[number], alternatives=())
    if edit.path.startswith("groups["):
        return replace(spec, ask=_edited_group(spec.ask, int(edit.path[7 : edit.path.index("]")]), rest, edit.new))
    if head in ("priority", "queue", "preemptible", "time_limit"):
        field = "time_limit_ms" if head == "time_limit" else head
        return replace(spec, **{field: getattr(_read(head, edit.new), field)})
    return replace(spec, ask=_edited_ask(spec.ask, head, rest, edit.new))


def _edited_ask(ask: GangAsk, head: str, rest: str, new) -> GangAsk:
    if head == "devices":
        return replace(ask, each=replace(ask.each, devices=_edited_devices(ask.each.devices, rest, new)))
    if head in HOST_FIELDS:
        found = getattr(_read(head, new).ask.each.host, HOST_FIELDS[head])
        return replace(ask, each=replace(ask.each, host=replace(ask.each.host, **{HOST_FIELDS[head]: found})))
    if head == "replicas":
        found = _read(head, new).ask
        return replace(ask, replicas=found.replicas, replicas_max=found.replicas_max)
    if head == "topology":
        return replace(ask, topology=replace(ask.topology, required=new) if rest else _read(head, new).ask.topology)
    kind, _, name = rest.partition(".")
    if not rest:
        return replace(ask, labels_wanted=(), labels_shunned=())
    left = tuple(label for label in getattr(ask, f"labels_{kind}") if label[0] != name)
    return replace(ask, **{f"labels_{kind}": left})


def _edited_group(ask: GangAsk, number: int, field: str, new) -> GangAsk:
    group = ask.others[number]
    if field == "replicas":
        group = replace(group, replicas=new)
    else:
        group = replace(group, each=replace(group.each, devices=replace(group.each.devices, count=new)))
    return replace(ask, others=(*ask.others[:number], group, *ask.others[number + 1 :]))


def _edited_devices(devices, rest: str, new):
    field = DEVICE_FIELDS[rest]
    if new is None:
        return replace(devices, **{field: type(devices)(1).__getattribute__(field)})
    raw = {rest: list(new) if isinstance(new, tuple) else new, **({"share": 0.5} if rest == "memory_limit" else {})}
    return replace(devices, **{field: getattr(_read("devices", raw).ask.each.devices, field)})


def _read(field: str, value) -> JobSpec:
    problems: list = []
    found = parse_job({"command": "true", field: value}, "", problems).spec
    assert not problems, problems
    return found


def _of_cluster(w: World, edit: Edit) -> Plan:
    head, _, rest = edit.path.partition(".")
    if head == "jobs":
        for replica in w.job(int(rest)).attempt.replicas:
            if replica.holds:
                w.exit_replica(int(rest), replica.rank)
    elif head == "nodes" and rest:
        w.drain(rest.partition(".")[0], on=False)
    elif head == "nodes":
        like = next(n.spec for n in w.state.nodes.values() if edit.text.endswith(f" {n.spec.name}"))
        for number in range(edit.new - edit.old):
            w.hello(replace(like, name=f"{like.name}+{number}"))
    else:
        w.emit(ConfigChanged(_edited_config(w.state.config, edit), "operator"))
    return plan(take_snapshot(w.state), w.now)


def _edited_config(config, edit: Edit):
    head, _, rest = edit.path.partition(".")
    if head == "pools":
        name = rest.removesuffix(".reserve")
        pools = tuple(replace(p, reserve_milli=round(1000 * edit.new)) if p.name == name else p for p in config.pools)
        return replace(config, pools=pools)
    if head == "reservations":
        return replace(config, reservations=tuple(r for r in config.reservations if r.name != rest))
    for path, amount in zip(edit.path.split(", "), edit.new.split(", "), strict=True):
        _, name, _, resource = path.split(".", 3)
        raw = amount if resource == "memory" else float(amount)
        quota = quota_field("").read(Reader("", []), "max", {resource: raw})
        queues = [replace(q, max=_merged(q.max, quota)) if q.name == name else q for q in config.queues]
        config = replace(config, queues=tuple(queues))
    return config


def _merged(old, new):
    return tuple(sorted((dict(old) | dict(new)).items()))
