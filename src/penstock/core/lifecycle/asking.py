"""Checks of a request's names and amount, against the configuration and the jobs that wait already.

Read-only, caches included: callers run it beside the control loop, so that a refused request costs the loop nothing,
and the loop runs it once more.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from penstock.core.lifecycle.images import closed_image
from penstock.core.lifecycle.size import BOUNDS, RequestBounds
from penstock.core.lifecycle.thresholds import Holding, over_share
from penstock.core.messages.requests import NewJob, Submit
from penstock.core.model.cluster import ClusterConfig, Queue, Settings
from penstock.core.model.errors import Problem, Problems, TooManyProblems, nearest
from penstock.core.model.ids import QueueName, TenantName, UserName
from penstock.core.model.inputs import allowed_host, host_of, protocol_of, protocol_problem, public_url, words_of
from penstock.core.model.jobs import GangAsk, JobSpec
from penstock.core.state.state import State

QUEUE_FACTOR = 2
"""A tenant alone may fill two thirds of a queue."""


def asked_problems(state: State, request: Submit, bounds: RequestBounds = BOUNDS) -> list[Problem]:
    """Return what is wrong with the names and the amount of a request. Any thread."""
    problems = Problems()
    try:
        if request.config_seq != state.config_seq:  # names not checked against this configuration
            _find(state, request, bounds, problems)
        if not problems:
            _look_for_room(state, request, problems)
    except TooManyProblems:
        return problems.and_more()
    return problems


def name_problems(state: State, request: Submit, bounds: RequestBounds = BOUNDS) -> list[Problem]:
    """Return what is wrong with the names of a request, secrets included, whether or not there is room for it."""
    problems = Problems()
    try:
        _find(state, request, bounds, problems)
        for new in request.jobs:
            problems += _unknown_secrets(state, new, request.user, hinted=bool(problems))
    except TooManyProblems:
        return problems.and_more()
    return problems


def _look_for_room(state: State, request: Submit, problems: list[Problem]) -> None:
    """Report queues without room and unknown secrets; both may have changed since the last check."""
    coming: dict[QueueName, Counter[TenantName]] = {}
    for new in request.jobs:
        counts = coming.get(new.spec.queue)
        if counts is None:
            counts = coming[new.spec.queue] = Counter()
        counts[new.spec.tenant] = counts.get(new.spec.tenant, 0) + new.count
        if new.spec.secrets or new.spec.notify_to:
            owner = UserName("") if request.delegated else request.user
            problems += _unknown_secrets(state, new, owner, hinted=bool(problems))
    for name, counts in coming.items():
        queue = state.config.queue_by_name[name]
        full = no_room(state, queue, counts, request.user, administrator=request.administrator)
        if full is not None:
            problems.append(full)


def _find(state: State, request: Submit, bounds: RequestBounds, problems: list[Problem]) -> None:
    seen: set[int] = set()
    shapes: set[GangAsk] = set()
    named: set[tuple[str, ...]] = set()
    replicas = 0
    for new in request.jobs:
        spec = new.spec
        if id(spec) in seen:
            continue
        seen.add(id(spec))
        for ask in (spec.ask, *spec.alternatives) if spec.alternatives else (spec.ask,):
            if ask not in shapes:
                shapes.add(ask)
                replicas += ask.replica_total
        if len(shapes) > bounds.shapes or replicas > bounds.replicas_tried:
            problems.append(_too_many_shapes(new.field, bounds))
            return
        if spec.inputs:
            problems += _closed_inputs(state.config.settings, spec, f"{new.field}." if new.field else "")
        if spec.image is not None:
            problems += closed_image(
                state.config.settings, spec.image, spec.workdir, f"{new.field}." if new.field else ""
            )
        names = (spec.queue, spec.tenant, spec.ask.pool)
        if names not in named:
            found = unknown_names(state.config, spec, f"{new.field}." if new.field else "")
            problems += found
            if not found:
                named.add(names)


def _too_many_shapes(field: str, bounds: RequestBounds) -> Problem:
    text = f"one request may ask for {bounds.shapes} different shapes of jobs, of {bounds.replicas_tried} replicas "
    text += "together"
    return Problem("too_many_shapes", field, text, "", "round what the jobs ask for, or submit fewer at once")


def unknown_names(config: ClusterConfig, spec: JobSpec, prefix: str) -> list[Problem]:
    """Return which of the queue, tenant and pool of a request are not declared."""
    problems = []
    for field, value, names in (
        ("queue", spec.queue, config.queue_by_name),
        ("tenant", spec.tenant, config.tenant_by_name),
        ("pool", spec.ask.pool, config.pool_by_name),
    ):
        if value not in names:
            text = f"there is no {field} '{value}'"
            problems.append(Problem(f"unknown_{field}", prefix + field, text, value, nearest(value, names)))
    return problems


def _closed_inputs(settings: Settings, spec: JobSpec, prefix: str) -> Iterator[Problem]:
    """Yield the inputs of a request that the cluster does not let its nodes fetch."""
    protocols, hosts = words_of(settings.input_protocols), words_of(settings.input_hosts)
    for one in spec.inputs:
        field, shown, protocol = f"{prefix}inputs.{one.path[:80]}", public_url(one.url)[:256], protocol_of(one.url)
        why, hint = protocol_problem(protocol, protocols)
        if why:
            yield Problem("bad_value", field, f"{field} is '{shown}' of protocol '{protocol}': {why}", shown, hint)
        elif protocol != "file" and not allowed_host(host_of(one.url), hosts):
            text = f"{field} is '{shown}', expected one of a host that this cluster allows: {', '.join(hosts)}"
            yield Problem("bad_value", field, text, shown, "settings.input_hosts lists them")


def no_room(
    state: State, queue: Queue, coming: Mapping[TenantName, int], user: UserName, *, administrator: bool
) -> Problem | None:
    """Return why a queue takes no more waiting jobs of a user: it is full, or the rest is for others. Any thread.

    Args:
        coming: how many jobs of each tenant are to wait in it.
        administrator: the caller administers the cluster: fair shares do not apply.
    """
    waiting, more = state.jobs.queued(queue.name), sum(coming.values())
    if waiting + more > queue.max_waiting:
        text = f"queue '{queue.name}' holds {waiting} of at most {queue.max_waiting} waiting jobs"
        return Problem("queue_full", "queue", text, queue.name, "submit again when some have run")
    if administrator:
        return None
    claims = _claims(state, queue.name, coming, user)
    over = over_share(claims, used=waiting, most=queue.max_waiting, more=more, factor=QUEUE_FACTOR)
    if over is None:
        return None
    text = f"{over.who} has {over.own} waiting jobs in queue '{queue.name}'; {more} more would leave too few of its "
    text += f"{over.left} free places to others"
    return Problem("share_used_up", "queue", text, queue.name, "submit again when some have run, or fewer at once")


def _claims(state: State, queue: QueueName, coming: Mapping[TenantName, int], user: UserName) -> Iterator[Holding]:
    """Yield how much of a queue some tenants and a user have; an only tenant or user has no share to keep to."""
    if len(state.config.tenants) > 1:
        for name in sorted(coming):
            yield Holding(f"tenant '{name}'", state.jobs.queued(queue, tenant=name))
    if len(state.config.users) > 1:
        yield Holding(user, state.jobs.queued(queue, user=user))


def _unknown_secrets(state: State, new: NewJob, user: UserName, *, hinted: bool) -> list[Problem]:
    """Return the secrets that the job would not get; the first one of a request with the nearest known name as hint."""
    problems: list[Problem] = []
    prefix = f"{new.field}." if new.field else ""
    named = [(f"secrets.{variable}", name) for variable, name in new.spec.secrets]
    for field, name in (*named, *(("notify", name) for one in new.spec.notify_to for name in one.secrets)):
        if state.secrets.of(new.spec.tenant, user, name) is None:
            text = f"there is no secret '{name}' of {user} or of tenant {new.spec.tenant}"
            if not user:
                text = f"there is no secret '{name}' of tenant {new.spec.tenant}, and this token reaches no others"
            hint = "" if problems or hinted else nearest(name, state.secrets.names(new.spec.tenant, user))
            if not hint.startswith("did you mean"):
                hint = f"{hint}; " * bool(hint) + f"penstock secret set {name}"
            problems.append(Problem("unknown_secret", f"{prefix}{field}", text, name, hint))
    return problems
