"""Job files: plain data (from YAML or JSON) to checked job requests, with *all* problems found, not the first.

One table of fields drives parsing, error messages and the JSON Schema.
"""

import hashlib
from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from penstock.core.config.ask import build_alternatives, build_ask
from penstock.core.config.elastic import build_batch
from penstock.core.config.fields import Json, Values, described, described_fields, read_fields, struct
from penstock.core.config.image import covers, with_runtime
from penstock.core.config.job_fields import FIELDS, ArrayIndexes, RuntimeAsk, Workdir
from penstock.core.config.job_graph import sorted_by_dependency
from penstock.core.config.job_notify import JobNotify
from penstock.core.config.reader import Raw, Reader, shown
from penstock.core.messages.requests import JOBS_MAX, NewJob
from penstock.core.model import cluster
from penstock.core.model import jobs as m
from penstock.core.model.containers import ImageAsk, is_plain
from penstock.core.model.environments import PythonSpec
from penstock.core.model.errors import Problem, Problems, TooManyProblems
from penstock.core.model.ids import JobId, QueueName, TenantName

REQUEST_MAX_BYTES = 64 * 2**20
"""All different jobs of one request as they are read."""
MARKER_MAX_BYTES = 256
"""A longer entry is identified by its digest."""
KINDS = get_args(m.DependencyKind)
CHECKPOINT = m.CheckpointSpec()
WITHOUT_IMAGE = ("python", "conda", "setup")
WITHOUT_HINT = "put what it needs into the image"
HOLD = ("sleep", "infinity")
"""The command of a lease."""


def parse_request(raw: object) -> tuple[tuple[NewJob, ...], list[Problem]]:
    """Return the entries of a submit request in dependency order, and everything wrong with it.

    Args:
        raw: one job as a mapping, a list of jobs, or a mapping with `jobs` (a list) and optional `defaults`.
    Returns: entries (usable only when there are no problems) and problems.
    """
    problems = Problems()
    try:
        entries = _entries(raw, problems)
        jobs = _jobs(entries, problems)
        return ((), problems) if problems else (sorted_by_dependency(jobs, problems), problems)
    except TooManyProblems:
        return (), problems.and_more()


def _jobs(entries: "list[tuple[str, Raw]]", problems: list[Problem]) -> list[NewJob]:
    """Return the jobs of entries; equal entries are read once."""
    jobs: list[NewJob] = []
    seen: dict[bytes, NewJob] = {}
    size = 0
    for where, entry in entries:
        if len(entries) == 1:
            return [parse_job(entry, where, problems)]
        marker, length = _marker(entry)
        known = seen.get(marker) if marker else None
        if known is None:
            size += length
            if size > REQUEST_MAX_BYTES:
                text = f"the jobs of a request, its defaults in each of them, may have {REQUEST_MAX_BYTES} bytes"
                problems.append(Problem("too_large", where, text, str(size), "put large things into files"))
                return []
            known = parse_job(entry, where, problems)
            if marker:
                seen[marker] = known
        jobs.append(known)
    return jobs


def _marker(entry: Raw) -> tuple[bytes, int]:
    """Return a key that equal entries share, b'' for an entry without equals; and its size in bytes."""
    try:
        encoded = msgspec.msgpack.encode(entry)
    except (OverflowError, TypeError, ValueError):
        return b"", 0  # its problems are reported when it is read
    if "after_ok" in entry or "after_any" in entry or "after_failed" in entry:
        return b"", len(encoded)
    if len(encoded) <= MARKER_MAX_BYTES:
        return encoded, len(encoded)
    return hashlib.blake2b(encoded, digest_size=MARKER_MAX_BYTES // 4).digest(), len(encoded)


def _entries(raw: object, problems: list[Problem]) -> list[tuple[str, Raw]]:
    top = Reader("", problems)
    defaults: Raw = {}
    if isinstance(raw, Mapping) and "jobs" in raw:
        top.unknown(raw, ("jobs", "defaults"))
        given = raw.get("defaults", {})
        if isinstance(given, Mapping):
            top_defaults = Reader("defaults", problems)
            top_defaults.unknown(given, tuple(FIELDS))
            defaults = {name: value for name, value in given.items() if name in FIELDS}
        else:
            top.wrong("defaults", given, "a mapping of job fields")
        raw = raw["jobs"]
        if not isinstance(raw, list) or not raw:
            top.wrong("jobs", raw, "a list of at least one job")
            return []
    if isinstance(raw, list):
        if len(raw) > JOBS_MAX:
            text = f"one request may create {JOBS_MAX} jobs, this one asks for {len(raw)}"
            problems.append(Problem("too_many_jobs", "jobs", text, str(len(raw))))
            return []
        if not raw:
            problems.append(Problem("bad_value", "", "the list of jobs is empty", "[]", "give at least one job"))
        found = []
        for index, entry in enumerate(raw):
            if isinstance(entry, Mapping):
                found.append((f"jobs[{index}]", {**defaults, **entry} if defaults else entry))
            else:
                top.wrong(f"jobs[{index}]", entry, "a mapping of job fields")
        return found
    if not isinstance(raw, Mapping):
        problems.append(
            Problem("bad_value", "", f"a job is a mapping of fields, found {shown(raw)}", shown(raw), "see the docs")
        )
        return []
    return [("", raw)]


def parse_job(raw: Raw, where: str, problems: list[Problem]) -> NewJob:
    """Return one entry; problems are appended. With problems the value must not be used."""
    reader = Reader(where, problems)
    values = read_fields(reader, raw, FIELDS)
    if values.get("lease"):
        _lease(values, raw, reader)
    elif not values.get("command"):
        if raw.get("command") is None:
            text = f"{reader.path('command')} is missing, expected what to run"
            problems.append(Problem("missing_field", reader.path("command"), text, "", "command: python train.py"))
        values["command"] = ("true",)
    return _build(values, reader)


UNNAMED: dict[tuple[bool, bool], tuple[Literal["tenant", "queue"], ...]] = {
    (True, True): (),
    (False, True): ("tenant",),
    (True, False): ("queue",),
    (False, False): ("tenant", "queue"),
}
"""By whether a job names its tenant and its queue; shared, for a request may have many jobs."""


def _lease(values: Values, raw: Raw, reader: Reader) -> None:
    """Give a lease the command that waits, and report fields that a lease cannot have."""
    if raw.get("command") is not None:
        text = f"{reader.path('command')} is given, but a lease has none"
        problems = Problem("bad_value", reader.path("command"), text, "", "penstock shell opens a shell in a lease")
        reader.problems.append(problems)
    if not values.get("time_limit"):
        text = f"{reader.path('time_limit')} is missing, expected when the lease ends"
        reader.problems.append(Problem("missing_field", reader.path("time_limit"), text, "", "time_limit: 4h"))
    values["command"] = HOLD
    values.setdefault("name", "lease")
    values.setdefault("preemptible", False)


def _build(values: Values, reader: Reader) -> NewJob:
    array: ArrayIndexes = values.get("array", ArrayIndexes(0))
    after = [(item, kind) for kind in KINDS if kind in values for item in values[kind]]
    command, workdir = values["command"], values.get("workdir", Workdir())
    runtime: RuntimeAsk = values.get("runtime", RuntimeAsk())
    image = _image(values, reader)
    ask = build_ask(values, reader)
    notify: JobNotify = values.get("notify", JobNotify())
    spec = m.JobSpec(
        command=command,
        ask=with_runtime(ask, image),
        name=values.get("name") or _name_of(command),
        tenant=TenantName(values.get("tenant", cluster.DEFAULT_TENANT)),
        queue=QueueName(values.get("queue", cluster.DEFAULT_QUEUE)),
        priority=values.get("priority", m.PRIORITY_CLASSES["medium"]),
        preemptible=values.get("preemptible", True),
        on_preempt=_on_preempt(values, reader),
        after=tuple(m.Dependency(JobId(item), kind) for item, kind in after if isinstance(item, int)) if after else (),
        time_limit_ms=values.get("time_limit", 0),
        on_hang=values.get("on_hang", "restart"),
        hang_limit_ms=values.get("hang_limit"),
        estimated_duration_ms=values.get("estimated_duration", 0),
        grace_ms=values.get("grace", 30_000),
        max_wait_ms=values.get("max_wait", 0),
        retries_max=values.get("retries", 0),
        env=values.get("env", ()),
        workdir=workdir.folder,
        snapshot=workdir.snapshot,
        inputs=values.get("inputs", ()),
        python=_python(values, reader),
        setup=values.get("setup", ()),
        image=image,
        checkpoint=values.get("checkpoint", CHECKPOINT),
        labels=values.get("labels", ()),
        alternatives=tuple(with_runtime(one, image) for one in build_alternatives(values, reader)),
        shareable=values.get("shareable", False),
        lease=values.get("lease", False),
        secrets=_secrets(values, reader),
        array_parallel=array.parallel,
        notify=notify.events,
        notify_to=notify.destinations,
        workload_class=values.get("workload_class", "training"),
        runtime=runtime.kind,
        object_store_bytes=runtime.object_store_bytes,
        ports=values.get("ports", ()),
        batch=build_batch(values, ask, reader),
    )
    names = tuple((item, kind) for item, kind in after if isinstance(item, str)) if after else ()
    unnamed = UNNAMED["tenant" in values, "queue" in values]
    held = values.get("hold", False)
    schedule = values.get("schedule")
    return NewJob(spec, array.members, names, reader.where, unnamed, array.first, array.step, held, schedule)


def _python(values: Values, reader: Reader) -> PythonSpec | None:
    made: PythonSpec | None = values.get("python")
    there: PythonSpec | None = values.get("conda")
    if made is not None and there is not None:
        field = reader.path("conda")
        text = f"{field} is '{there.conda}', and python is given, too: a program has one of the two"
        reader.problems.append(Problem("bad_value", field, text, there.conda, "leave one of them out"))
    return made or there


def _image(values: Values, reader: Reader) -> ImageAsk | None:
    """Return the image of a job; reports what cannot be had in it."""
    image: ImageAsk | None = values.get("image")
    if image is None:
        return None
    for field in ("runtime", "lease", *WITHOUT_IMAGE):
        if values.get(field):
            text = f"{reader.path('image')} is given, and so is {field}: the two cannot be combined"
            reader.problems.append(Problem("bad_value", reader.path("image"), text, image.name, WITHOUT_HINT))
    folder = values.get("workdir", Workdir()).folder
    if folder and (reason := covers(folder.rstrip("/") or "/")):
        text = f"{reader.path('workdir')} is {folder!r}, and the job has an image: {reason}"
        reader.problems.append(Problem("bad_value", reader.path("workdir"), text, folder, "name a folder of data"))
    elif folder and not is_plain(folder):
        text = f"{reader.path('workdir')} is {folder!r}, and the job has an image: no runtime mounts such a path safely"
        hint = "an absolute path of printable characters without , : \" \\ and '..'"
        reader.problems.append(Problem("bad_value", reader.path("workdir"), text, folder, hint))
    return image


def _secrets(values: Values, reader: Reader) -> tuple[tuple[str, str], ...]:
    given: tuple[tuple[str, str], ...] = values.get("secrets", ())
    plain = dict(values.get("env", ()))
    for variable, name in given:
        if variable in plain:
            field = reader.path(f"secrets.{variable}")
            text = f"{field} is a secret, and env gives {variable} another value"
            reader.problems.append(Problem("bad_value", field, text, name, f"leave {variable} out of env"))
    return given


def _on_preempt(values: Values, reader: Reader) -> m.OnPreempt:
    chosen: m.OnPreempt = values.get("on_preempt", "stop")
    if chosen == "suspend" and build_ask(values, reader).device_total:
        field = reader.path("on_preempt")
        text = f"{field} is suspend, but the job holds devices: others could not use their memory meanwhile"
        reader.problems.append(Problem("bad_value", field, text, "suspend", "stop: the job saves and ends"))
    return chosen


def _name_of(command: tuple[str, ...]) -> str:
    words = command[2].split() if command[:2] == ("/bin/sh", "-c") else list(command)
    base = words[0].rsplit("/", 1)[-1] if words else "job"
    if base.startswith("python") and len(words) > 1:
        base = next((w for w in words[1:] if not w.startswith("-")), base).rsplit("/", 1)[-1]
    return base[:64] or "job"


def job_schema() -> Json:
    """Return the JSON Schema of one job."""
    return {
        "title": "Job",
        **_entry_schema(),
        "anyOf": [{"required": ["command"]}, {"required": ["lease", "time_limit"]}],
    }


def _entry_schema() -> Json:
    return struct(**described_fields(FIELDS))


def request_schema() -> Json:
    """Return the JSON Schema (2020-12) of a job file: one job, or a list of them with defaults."""
    fields = {"$ref": "#/$defs/fields"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Penstock job file",
        "anyOf": [
            {"$ref": "#/$defs/job"},
            {"type": "array", "items": {"$ref": "#/$defs/job"}, "minItems": 1},
            {
                **struct(
                    jobs=described({"type": "array", "minItems": 1, "items": fields}, "the jobs of the file"),
                    defaults=described(fields, "fields of every job that does not name them itself"),
                ),
                "required": ["jobs"],
            },
        ],
        "$defs": {"job": job_schema(), "fields": {"title": "Fields of a job", **_entry_schema()}},
    }
