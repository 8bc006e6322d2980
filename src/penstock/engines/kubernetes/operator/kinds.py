"""Our own kinds that have no namespace."""

from penstock.engines.kubernetes.api.client import Kind
from penstock.engines.kubernetes.objects.penstock import GROUP, VERSION

QUEUES = Kind(GROUP, VERSION, "queues", namespaced=False)
POOLS = Kind(GROUP, VERSION, "computepools", namespaced=False)
