"""The queue tree of a cluster file: each queue with its quotas, and the problems of the tree and its guarantees.

A guarantee is a promise, so it has to add up: level by level, and by resource name.
"""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import msgspec

from penstock.core.config.elastic import MODE_TEXT, MODES
from penstock.core.config.fields import (
    NAME,
    QUANTITY,
    SIZE,
    STRING,
    Field,
    Section,
    described,
    duration,
    from_milli,
    integer,
    label,
    section,
    struct,
    whole,
    word,
)
from penstock.core.config.reader import Reader
from penstock.core.model import cluster as c
from penstock.core.model.errors import PROBLEMS_MAX, Problem, nearest
from penstock.core.model.ids import QueueName
from penstock.core.model.quantities import (
    BYTES,
    exact_size,
    format_resource,
    parse_size_bytes,
    resource_text,
    split_resource,
)
from penstock.core.order.extension import EXTENSION_PREFIX, Policies

POLICIES: tuple[str, ...] = get_args(c.BuiltinPolicy)
PREEMPTION_RULES: tuple[str, ...] = get_args(c.PreemptionRule)
RECLAIM_RULES: tuple[str, ...] = get_args(c.ReclaimRule)
RESOURCES = ("devices", "cpus", "memory", "storage", "jobs")
MODEL_PREFIX = "devices:"
WEIGHT_MAX = 1_000_000
AMOUNT_MAX = 2**53
ALERTS_MAX = 20
DEPTH_MAX = 32
"""Queues above a queue: each start is counted in all of them."""


def policy(about: str, policies: Policies, default: str) -> Field:
    """A policy's name: a builtin one, or `ext:NAME` of an installed one."""
    of_words = word(about, [*POLICIES, *(EXTENSION_PREFIX + name for name in sorted(policies))], default)
    own = {**STRING, "pattern": f"^{EXTENSION_PREFIX}.+$"}
    return msgspec.structs.replace(of_words, schema={"anyOf": [{"enum": list(POLICIES)}, own]})


def quota(about: str) -> Field:
    """Amounts by resource, sorted by name."""
    return Field(_read_quota, _QUOTA, about, write=_plain_quota)


def _read_quota(reader: Reader, field: str, value: Any) -> c.Quota:
    if not isinstance(value, Mapping):
        expected = "a mapping such as {devices: 16, 'devices:A100': 8, a100/devices: 8, cpus: 64, memory: 512GiB}"
        reader.wrong(field, value, expected)
        return ()
    inner = Reader(reader.path(field), reader.problems)
    found = []
    for name, amount in value.items():
        pool, resource = split_resource(str(name))
        if not isinstance(name, str) or not (resource in RESOURCES or _is_model(resource)):
            text = f"{inner.path(str(name))} is not a resource, expected one of {', '.join(RESOURCES)}, devices:MODEL"
            text += ", or of one pool alone: POOL/devices, ..."
            hint = nearest(str(name), [f"{pool}/{one}" for one in RESOURCES] if pool else RESOURCES)
            inner.problems.append(Problem("unknown_resource", inner.path(str(name)), text, str(name)[:80], hint))
        else:
            found.append((name, _amount(inner, name, amount)))
    return tuple(sorted(found))


def _is_model(name: str) -> bool:
    return name.startswith(MODEL_PREFIX) and len(MODEL_PREFIX) < len(name) <= 128 and name.isprintable()


def _amount(reader: Reader, name: str, value: object) -> int:
    _, resource = split_resource(name)
    if resource in BYTES:
        return reader.quantity(name, value, parse_size_bytes, "512GiB")
    if resource == "jobs":
        return reader.integer(name, value, low=0, high=AMOUNT_MAX, default=0)
    return reader.milli(name, value, "a number from 0 in steps of 0.001, such as 16 or 0.5", high=AMOUNT_MAX, default=0)


def _plain_quota(quota: c.Quota) -> dict[str, str | float]:
    return {name: _plain_amount(split_resource(name)[1], value) for name, value in quota}


def _plain_amount(resource: str, value: int) -> str | float:
    if resource in BYTES:
        return exact_size(value)
    return value if resource == "jobs" else from_milli(value)


def alerts(about: str) -> Field:
    """Percentages, ascending, each once; an empty list raises no alert."""
    return Field(_read_alerts, {"type": "array", "maxItems": ALERTS_MAX, "items": whole(1, 1000)}, about, write=list)


def _read_alerts(reader: Reader, field: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > ALERTS_MAX:
        reader.wrong(field, value, "a list of percentages such as [80, 95, 100]")
        return ()
    return tuple(sorted({reader.integer(field, one, low=1, high=1000, default=100) for one in value}))


_QUOTA = {
    **struct(
        devices=described(QUANTITY, "devices of all models and pools; parts count as parts"),
        cpus=described(QUANTITY, "CPU cores"),
        memory=described(SIZE, "host memory"),
        storage=described(SIZE, "scratch space"),
        jobs=described(QUANTITY, "jobs that hold resources"),
    ),
    "patternProperties": {f"^([^/:]+/)?({'|'.join(RESOURCES)}|{MODEL_PREFIX}.+)$": QUANTITY},
}
_IDLE = Section(
    c.IdleRule,
    {
        "after": duration("idle time after which an event is logged", at="after_ms", example="30m"),
        "reclaim": word("whether a waiting job that fits there may preempt it then", RECLAIM_RULES),
    },
)


def queue_section(policies: Policies) -> Section[c.Queue]:
    """Return the fields of a queue.

    `least_attained` and `shortest_predicted` are accepted on a queue that has children, too: they order its own jobs,
    and its children are compared as `fifo` or, for `shortest_predicted`, as `priority`.

    Args:
        policies: the installed ones, by name.
    """
    fields = {
        "name": NAME,
        "parent": label("parent queue", c.ROOT_QUEUE),
        "policy": policy("order of its jobs, or of its child queues", policies, "shortest_predicted"),
        "preemption": word(
            "jobs that it may preempt: none, those that hold its guarantee, also those of lower priority",
            PREEMPTION_RULES,
            "lower_priority",
        ),
        "weight": integer("weight among its siblings under `fair_share`", 1, WEIGHT_MAX),
        "guaranteed": quota("guarantee, taken back from borrowers when needed"),
        "max": quota("maximum"),
        "lend": quota("part of an idle guarantee that others may borrow (all of it)"),
        "min_runtime": duration(
            "run time of an attempt before it may be preempted (the setting's)",
            at="min_runtime_ms",
            example="10m",
        ),
        "max_waiting": integer("limit of waiting jobs; a submit beyond it is refused", 1, 10_000_000),
        "elastic": word(
            f"how the sizes of its elastic jobs are chosen: {MODE_TEXT} (the parent's, or the pool's)", MODES
        ),
        "idle": section("rule for idle attempts (the parent's)", _IDLE),
        "alerts": alerts("percentages of its maxima that raise an alert"),
    }
    return Section(c.Queue, fields, _not_root)


def _not_root(reader: Reader, queue: c.Queue) -> None:
    if queue.name == c.ROOT_QUEUE:
        hint = "root_policy says in which order the queues below it go; it has no quotas of its own"
        reader.wrong("name", "root", "another name: 'root' is above all queues", hint=hint)


def tree_problems(queues: Sequence[c.Queue], places: Sequence[str] = ()) -> list[Problem]:
    """Return problems that keep `queues` from being a tree below `root`, and quotas that cannot be kept.

    Args:
        places: path of each queue in its file; by default `queues[i]`.
    """
    where = list(places) or [f"queues[{index}]" for index in range(len(queues))]
    problems = []
    parents = {q.name: q.parent for q in queues}
    children: dict[QueueName, list[c.Queue]] = {}
    for queue, place in zip(queues, where, strict=True):
        children.setdefault(queue.parent, []).append(queue)
        problems += _parent_problems(queue, f"{place}.parent", parents)
        if len(problems) >= PROBLEMS_MAX:
            return problems
    for queue, place in zip(queues, where, strict=True):
        problems += _own_quota_problems(queue, place)
        problems += _children_problems(queue, place, children.get(queue.name, []))
    return problems


def _parent_problems(queue: c.Queue, where: str, parents: Mapping[QueueName, QueueName]) -> list[Problem]:
    if queue.parent != c.ROOT_QUEUE and queue.parent not in parents:
        text = f"queue '{queue.name}' has the unknown parent '{queue.parent}'"
        return [Problem("unknown_queue", where, text, queue.parent, nearest(queue.parent, parents))]
    seen, above = {queue.name}, queue.parent
    while above != c.ROOT_QUEUE and above in parents:
        if above in seen:
            text = f"queue '{queue.name}' is above itself"
            return [Problem("queue_cycle", where, text, queue.parent)]
        seen.add(above)
        above = parents[above]
        if len(seen) > DEPTH_MAX:
            text = f"queue '{queue.name}' has more than {DEPTH_MAX} queues above it"
            return [Problem("too_deep", where, text, queue.parent, "put it below a queue that is higher up")]
    return []


def _own_quota_problems(queue: c.Queue, place: str) -> list[Problem]:
    """Report a guarantee above the queue's own maximum, and a loan above the guarantee that it is part of."""
    problems = []
    for resource, limit in queue.max:
        promised = amount_of(queue.guaranteed, resource)
        if promised > limit:
            said = f"queue '{queue.name}' is guaranteed {_said(resource, promised)}"
            text = f"{said}, but may hold {_said(resource, limit)} at most"
            field, value = f"{place}.guaranteed.{resource}", format_resource(resource, promised)
            problems.append(Problem("guarantee_above_max", field, text, value, "raise max, or guarantee less"))
    for resource, lent in queue.lend or ():
        promised = amount_of(queue.guaranteed, resource)
        if lent > promised:
            said = f"queue '{queue.name}' lends {_said(resource, lent)}"
            text = f"{said}, but is guaranteed {_said(resource, promised)}"
            field, value = f"{place}.lend.{resource}", format_resource(resource, lent)
            problems.append(Problem("lend_above_guarantee", field, text, value, "lend at most what is guaranteed"))
    return problems


def _children_problems(queue: c.Queue, place: str, children: Sequence[c.Queue]) -> list[Problem]:
    """Report guarantees of the children that add up to more than the queue's own: they could not all be reclaimed.

    By name: 8 devices do not promise 8 of one model; but 8 of one model and 8 of another are 16 devices.
    """
    problems = []
    for resource in sorted({name for child in children for name, _ in child.guaranteed}):
        together = sum(amount_of(child.guaranteed, resource) for child in children)
        limit = amount_of(queue.guaranteed, resource)
        if together > limit:
            names = ", ".join(f"'{child.name}'" for child in children if amount_of(child.guaranteed, resource))
            said = f"the queues below '{queue.name}' ({names}) are guaranteed {_said(resource, together)} together"
            text = f"{said}, but '{queue.name}' itself {_said(resource, limit)}"
            hint = f"guarantee '{queue.name}' {_said(resource, together)}, or them less"
            field, value = f"{place}.guaranteed.{resource}", format_resource(resource, together)
            problems.append(Problem("guarantee_above_parent", field, text, value, hint))
    return problems


def amount_of(quota: c.Quota, resource: str) -> int:
    """Return how much of `resource` a guarantee promises; devices include promises of single models.

    Promises of single pools are included in the promise of all.
    """
    pool, kind = split_resource(resource)
    parts = [(*split_resource(name), amount) for name, amount in quota]
    named = next((amount for name, amount in quota if name == resource), 0)
    if kind == "devices":
        named = max(named, sum(amount for at, name, amount in parts if at == pool and name.startswith(MODEL_PREFIX)))
    pools = {name for name, _, _ in parts if name} if not pool else ()
    return max(named, sum(amount_of(quota, f"{name}/{kind}") for name in pools))


def _said(resource: str, amount: int) -> str:
    text, kind = format_resource(resource, amount), split_resource(resource)[1]
    of = "of " if kind in BYTES or kind.startswith(MODEL_PREFIX) else ""
    return f"{text} {of}{resource_text(resource)}"
