"""ConfigMaps, as far as they are read."""

from penstock.engines.kubernetes.objects.common import Metadata, Wire


class ConfigMap(Wire, frozen=True):
    metadata: Metadata
    data: dict[str, str] = {}
