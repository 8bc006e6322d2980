"""Cells of the plain CSV: the request and the work of a job, read from text."""

from collections.abc import Callable, Mapping

from penstock.core.config.ask import DEVICES_PER_REPLICA_MAX, REPLICAS_MAX
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.errors import nearest
from penstock.core.model.ids import QueueName, TenantName
from penstock.core.model.jobs import PRIORITY_CLASSES, GangAsk, JobSpec
from penstock.core.model.quantities import parse_duration_ms, parse_size_bytes
from penstock.core.model.resources import WHOLE_DEVICE_MILLI, DeviceAsk, ReplicaAsk, Resources
from penstock.formats.files import FilePlace, from_json
from penstock.formats.numbers import RUN_MAX_MS, number, seconds_to_ms, whole_number, within
from penstock.traces.loaders.build import COMMAND, printable
from penstock.traces.loaders.shapes import DEVICES_MAX, gang
from penstock.traces.model import Ending, Work

SPEC_COLUMNS = (
    "name", "devices", "replicas", "replicas_max", "model", "cpus", "memory", "tenant", "queue", "priority", "limit",
    "retries", "shareable",
)  # fmt: skip
WORK_COLUMNS = ("run", "ends", "speeds", "scaling", "saves", "fails", "use")
COLUMNS = ("job", "submit", "user", *WORK_COLUMNS, *SPEC_COLUMNS, "started", "ended", "spec")
FULL_MILLI, MIB = 1000, 2**20
_USE = ("busy", "mib", "beside")
ENDS: tuple[Ending, ...] = ("succeeded", "failed", "cancelled")
PRIORITY_MAX = 10_000
RETRIES_MAX = 10_000
POINTS_MAX = 1_000
SPEED_MAX_MILLI = 10**12
CPU_MAX_MILLI = 10**9
MEMORY_MAX_BYTES = 2**60
MODEL_MAX = 128

Cells = Mapping[str, str]
"""By column; empty where a column is missing."""


def read_work(place: FilePlace, cells: Cells) -> Work:
    """Return the work of a row. Raises: TraceError."""
    run_ms = _cell(place, cells, "run", _duration_ms, "seconds, or a duration such as 1h30m")
    word = cells["ends"] or "succeeded"
    ends = next((known for known in ENDS if known == word), None)
    if ends is None:
        raise place.fault("ends", word, "one of " + ", ".join(ENDS), nearest(word, ENDS))
    saves = _yes(place, cells, "saves")
    speeds = _points(place, cells, "speeds", "relative speeds such as V100=1000;K80=300 (thousandths)")
    scaling = _points(place, cells, "scaling", "sizes and speeds such as 1=1000;2=1900 (thousandths of one replica's)")
    sizes: list[tuple[int, int]] = []
    for size, speed in scaling:
        if not (size.isdigit() and size.isascii() and len(size) < 7) or int(size) <= (sizes[-1][0] if sizes else 0):
            raise place.fault("scaling", cells["scaling"], "sizes in ascending order, from 1")
        sizes.append((int(size), speed))
    fails = tuple(
        _cell(place, {"fails": part}, "fails", _duration_ms, "seconds such as 60;120") for part in _parts(cells)
    )
    return Work(run_ms, ends, fails, speeds, tuple(sizes), saves, *_read_use(place, cells))


def _read_use(place: FilePlace, cells: Cells) -> tuple[int | None, int, int]:
    """Return the use of a device (thousandths), its memory (bytes), and the speed beside another job."""
    if not cells["use"]:
        return None, 0, FULL_MILLI
    expected = "use, memory and speed beside another job, such as busy=300;mib=8192;beside=900"
    told = dict(_points(place, cells, "use", expected))
    busy, beside = told.get("busy", 0), told.get("beside", FULL_MILLI)
    if not told.keys() <= set(_USE) or busy > FULL_MILLI or not 0 < beside <= FULL_MILLI:
        raise place.fault("use", cells["use"], expected)
    return busy, told.get("mib", 0) * MIB, beside


def _yes(place: FilePlace, cells: Cells, column: str) -> bool:
    if cells[column] not in ("", "no", "yes"):
        raise place.fault(column, cells[column], "yes or no")
    return cells[column] == "yes"


def _parts(cells: Cells) -> list[str]:
    parts = cells["fails"].split(";") if cells["fails"] else []
    return parts[: POINTS_MAX + 1]


def read_spec(place: FilePlace, cells: Cells, width: int, config: ClusterConfig | None) -> JobSpec:
    """Return what a row asks for: the `spec` column as it is, else what the other columns say.

    Args:
        width: devices of a node, which a job that names no `replicas` fills one after another.
        config: has the allowed queues and tenants; None allows any.
    Raises: TraceError.
    """
    if cells["spec"]:
        spec = _whole_spec(place, cells["spec"])
    else:
        spec = JobSpec(
            COMMAND,
            _ask(place, cells, width),
            name=printable(cells["name"]),
            tenant=TenantName(cells["tenant"] or "default"),
            queue=QueueName(cells["queue"] or "default"),
            priority=_cell(place, cells, "priority", _priority, "low, medium, high, or a number from 0 to 10000"),
            retries_max=_cell(place, cells, "retries", _whole(RETRIES_MAX), f"a number up to {RETRIES_MAX}"),
            time_limit_ms=_cell(place, cells, "limit", _duration_ms, "seconds, or a duration such as 8h"),
            shareable=_yes(place, cells, "shareable"),
        )
    if config is not None:
        queues, tenants = config.queue_by_name, [tenant.name for tenant in config.tenants]
        if spec.queue not in queues:
            raise place.fault("queue", spec.queue, "a queue of the config", nearest(spec.queue, queues))
        if spec.tenant not in tenants:
            raise place.fault("tenant", spec.tenant, "a tenant of the config", nearest(spec.tenant, tenants))
    return spec


def _ask(place: FilePlace, cells: Cells, width: int) -> GangAsk:
    devices_milli = _cell(
        place, cells, "devices", _thousandths(DEVICES_MAX), "devices such as 8, or a part such as 0.25"
    )
    replicas = _cell(place, cells, "replicas", _whole(REPLICAS_MAX), f"a number of replicas up to {REPLICAS_MAX}")
    most = _cell(place, cells, "replicas_max", _whole(REPLICAS_MAX), f"a number of replicas up to {REPLICAS_MAX}")
    models = tuple(model for model in cells["model"][:MODEL_MAX].split("|") if model)
    host = Resources(
        _cell(place, cells, "cpus", _thousandths(CPU_MAX_MILLI // 1000), "a number of CPUs"),
        _cell(place, cells, "memory", _memory_bytes, "a size such as 64GiB, or bytes"),
    )
    count, part = divmod(devices_milli, WHOLE_DEVICE_MILLI)
    if part and count:
        raise place.fault("devices", cells["devices"], "whole devices, or a part of one")
    if most and (not replicas or most < replicas):
        raise place.fault("replicas_max", cells["replicas_max"], "at least the number of replicas, which is required")
    if not replicas and not part:
        return gang(count, width, host, models)
    if count > DEVICES_PER_REPLICA_MAX:
        raise place.fault("devices", cells["devices"], f"at most {DEVICES_PER_REPLICA_MAX} devices of a replica")
    share_milli = part or WHOLE_DEVICE_MILLI
    devices = DeviceAsk(count or 1, models=models, share_milli=share_milli) if devices_milli else None
    return GangAsk(max(1, replicas), ReplicaAsk(host, devices), replicas_max=most if most > replicas else 0)


def _whole_spec(place: FilePlace, text: str) -> JobSpec:
    spec = from_json(text, JobSpec, place, "JSON of a JobSpec, as write_csv writes it", field="spec")
    for ask in (spec.ask, *spec.alternatives):
        groups = ((ask.replicas, ask.each), *((group.replicas, group.each) for group in ask.others))
        sound = all(count >= 1 and 0 <= each.device_count <= DEVICES_PER_REPLICA_MAX for count, each in groups)
        hosts = [each.host for _, each in groups]
        if not sound or ask.replica_total > REPLICAS_MAX or any(h.cpu_milli < 0 or h.memory_bytes < 0 for h in hosts):
            raise place.fault(
                "spec", text, f"1 to {REPLICAS_MAX} replicas with up to {DEVICES_PER_REPLICA_MAX} devices"
            )
    return spec


def _cell(place: FilePlace, cells: Cells, column: str, read: Callable[[str], int], expected: str) -> int:
    try:
        return read(cells[column])
    except (ValueError, OverflowError):
        raise place.fault(column, cells[column], expected) from None


def _points(place: FilePlace, cells: Cells, column: str, expected: str) -> tuple[tuple[str, int], ...]:
    """Read `V100=1000;K80=300`."""
    found: list[tuple[str, int]] = []
    for part in cells[column].split(";") if cells[column] else ():
        name, said, value = part.rpartition("=")
        if not said or not name or not (value.isdigit() and value.isascii() and len(value) < 13):
            raise place.fault(column, part, expected)
        found.append((name, int(value)))
    if len(found) > POINTS_MAX:
        raise place.fault(column, f"{len(found)} of them", f"at most {POINTS_MAX}")
    return tuple(found)


def _duration_ms(text: str) -> int:
    """Read seconds, or a duration with units; empty is 0. Raises: ValueError."""
    if not text:
        return 0
    try:
        value = seconds_to_ms(text)
    except ValueError:
        if len(text) > 32:
            raise
        value = parse_duration_ms(text)
    return within(value, 0, RUN_MAX_MS)


def _priority(text: str) -> int:
    if not text:
        return PRIORITY_CLASSES["medium"]
    return within(PRIORITY_CLASSES[text] if text in PRIORITY_CLASSES else whole_number(text), 0, PRIORITY_MAX)


def _whole(high: int) -> Callable[[str], int]:
    return lambda text: within(whole_number(text) if text else 0, 0, high)


def _thousandths(high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        exact = number(text) * 1000 if text else 0.0
        if not 0 <= exact <= high * 1000 or abs(exact - round(exact)) > 1e-6:
            raise ValueError(text)
        return round(exact)

    return read


def _memory_bytes(text: str) -> int:
    if len(text) > 32:
        raise ValueError(text)
    return within(parse_size_bytes(text) if text else 0, 0, MEMORY_MAX_BYTES)
