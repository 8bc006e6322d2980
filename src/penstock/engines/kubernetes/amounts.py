"""What a pod takes of its node, by the rules of the kubelet: exact integers, never below what the kubelet admits by.

CPU is in thousandths of a core, memory and storage in bytes, everything else in whole units. Fractions are rounded up,
as Kubernetes does. Source: PodRequests of k8s.io/component-helpers/resource; KEP-753 (sidecars), KEP-1287 (resize in
place), KEP-2837 (resources of the whole pod).
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from penstock.engines.kubernetes.objects.common import Amounts
from penstock.engines.kubernetes.objects.pods import Container, ContainerStatus, Pod, PodSpec
from penstock.formats.quantities import QUANTITY_MAX, kubernetes_quantity, rounded_up

CPU, MEMORY, STORAGE, PODS = "cpu", "memory", "ephemeral-storage", "pods"
POD_LEVEL = (CPU, MEMORY)
"""What `resources` of a whole pod may name, besides huge pages."""
HUGE_PAGES = "hugepages-"

Sums = dict[str, int]
"""Amounts by resource, in the units of this module."""


class BadAmount(ValueError):
    """A quantity that cannot be read. Its text says which."""


@lru_cache(maxsize=4096)
def amount(resource: str, text: str) -> int:
    """Return one quantity in this module's units; larger than 2^60 counts as 2^60, as no node has that much.

    Raises: BadAmount for what is no quantity, or is negative.
    """
    try:
        number = kubernetes_quantity(text, capped=True)
    except ValueError:
        raise BadAmount(f"{resource}: '{text[:40]}' is no quantity such as 8, 1500m or 64Gi") from None
    return min(QUANTITY_MAX, rounded_up(number, 1000 if resource == CPU else 1))


def read(amounts: Amounts) -> Sums:
    """Return all quantities of a map. Raises: BadAmount."""
    return {resource: amount(resource, str(value)) for resource, value in amounts.items()}


def pod_sums(pod: Pod) -> Sums:
    """Return what a pod takes of its node from its binding to its end, `pods` included. Raises: BadAmount."""
    spec = pod.spec
    given_up = _resize_given_up(pod)
    status = {s.name: s for s in (*pod.status.container_statuses, *pod.status.init_container_statuses)}

    def of(container: Container) -> Sums:
        return _of_container(container, status.get(container.name), given_up=given_up)

    total: Sums = {}
    for container in spec.containers:
        _add(total, of(container))
    sidecars: Sums = {}
    peak: Sums = {}
    for container in spec.init_containers:
        each = of(container)
        if container.restart_policy == "Always":
            _add(sidecars, each)
            _raise_to(peak, sidecars)
        else:
            _raise_to(peak, _plus(each, sidecars))
    _add(total, sidecars)
    _raise_to(total, peak)
    total.update(_of_whole_pod(spec, total))
    _add(total, read(spec.overhead))
    total[PODS] = 1
    return total


def _of_whole_pod(spec: PodSpec, total: Mapping[str, int]) -> Sums:
    """Return what the pod asks for as a whole: it replaces the sum; a limit alone counts where no container asks."""
    limits = {name: n for name, n in read(spec.resources.limits).items() if not total.get(name)}
    whole = {**limits, **read(spec.resources.requests)}
    return {name: n for name, n in whole.items() if name in POD_LEVEL or name.startswith(HUGE_PAGES)}


def _of_container(container: Container, status: ContainerStatus | None, *, given_up: bool) -> Sums:
    """Return what a container takes: while it is resized the largest of what is asked, allocated and in use."""
    asked = _requested(read(container.resources.requests), read(container.resources.limits))
    if status is None or not (status.allocated_resources or status.resources.requests):
        return asked
    found = {} if given_up else dict(asked)
    for other in (read(status.allocated_resources), read(status.resources.requests)):
        _raise_to(found, other)
    return {**asked, **found}


def _resize_given_up(pod: Pod) -> bool:
    """Return whether the kubelet has refused the resize for good: then what it allocated counts."""
    return any(
        c.type == "PodResizePending" and c.status == "True" and c.reason == "Infeasible" for c in pod.status.conditions
    )


def _requested(requests: Mapping[str, int], limits: Mapping[str, int]) -> Sums:
    """Return requests with the API's default: where only a limit is given, it is the request."""
    return {**limits, **requests}


def _add(total: Sums, more: Mapping[str, int]) -> None:
    for name, number in more.items():
        total[name] = min(QUANTITY_MAX, total.get(name, 0) + number)


def _plus(one: Mapping[str, int], other: Mapping[str, int]) -> Sums:
    found = dict(one)
    _add(found, other)
    return found


def _raise_to(total: Sums, least: Mapping[str, int]) -> None:
    for name, number in least.items():
        total[name] = max(total.get(name, 0), number)


def sum_of(many: Iterable[Mapping[str, int]]) -> Sums:
    """Return the sum of several pods' amounts."""
    found: Sums = {}
    for one in many:
        _add(found, one)
    return found
