"""Penstock's configuration and jobs for another scheduler: objects, and the outcome of each key."""

from collections.abc import Iterable

from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.errors import InvalidInput, nearest
from penstock.formats.names import ObjectNames
from penstock.migrate.manifests import DEVICE_RESOURCES, device_vendor
from penstock.migrate.podgroups import SourceJob, pod_groups
from penstock.migrate.report import MigrationReport, SourcePlace
from penstock.migrate.tovolcano import Exported, VolcanoQueues


def to_volcano(
    config: ClusterConfig, source: str, jobs: Iterable[SourceJob] = (), *, namespace: str, device: str
) -> Exported:
    """Return Volcano's queues, priority classes and PodGroups, in the order in which they are to be created.

    Args:
        source: what the report calls the place of the configuration.
        device: the resource that devices are counted as, such as `nvidia.com/gpu`.
    Raises: InvalidInput for a namespace or device that cannot be; ImportFault for jobs of a queue that there is not.
    """
    if ObjectNames().plain(namespace) != namespace or "." in namespace:
        raise InvalidInput(f"namespace: '{namespace}', expected a name such as 'default' (RFC 1123)")
    if not device_vendor(device):
        hint = nearest(device, DEVICE_RESOURCES)
        raise InvalidInput(f"device: '{device}', expected a resource of devices such as nvidia.com/gpu", hint=hint)
    report = MigrationReport()
    queues = VolcanoQueues(config, SourcePlace(source), report, device)
    groups = pod_groups(jobs, queues, report, namespace=namespace, device=device)
    return Exported((*queues.objects, *groups), report.entries())
