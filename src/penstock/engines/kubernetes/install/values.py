"""What differs between installations, and how far it may."""

import re
from typing import Any, NamedTuple

from penstock.core.model.errors import InvalidInput

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?")
REPLICAS_MAX = 3
PORT = 8443


class Values(NamedTuple):
    """Settings of an installation; the chart has the same names and defaults."""

    namespace: str = "penstock"
    image: str = "penstock:latest"
    replicas: int = 1
    store_secret: str = ""
    """Secret with the key `url`: the address of a PostgreSQL database. Empty: SQLite on a volume, one replica."""
    storage: str = "10Gi"
    """Size of that volume."""
    cpu: str = "500m"
    memory: str = "1Gi"
    cluster_config: str = ""
    """ConfigMap with the key `cluster.yaml`: pools, tenants, queues; empty: one pool, one queue."""
    queue_config: str = "penstock-queues"
    """ConfigMap with the key `queues.yaml`, followed while it is there."""
    network_policy: bool = True
    shadow: bool = False
    """It only watches other schedulers: one server, without rights to write, and without definitions of our kinds."""

    def check(self) -> "Values":
        """Return the values. Raises: InvalidInput, with the field and what was expected."""
        for field in ("namespace", "store_secret", "cluster_config", "queue_config"):
            text = getattr(self, field)
            if text and NAME.fullmatch(text) is None:
                raise InvalidInput(f"{field}: {text!r}, expected a name such as 'penstock' (RFC 1123)")
        for field, example in (("namespace", "penstock"), ("queue_config", "penstock-queues")):
            if not getattr(self, field):
                raise InvalidInput(f"{field}: empty, expected a name such as '{example}'")
        if not self.image or any(one.isspace() for one in self.image):
            raise InvalidInput(f"image: {self.image!r}, expected an image such as 'penstock:1.0'")
        for field in ("storage", "cpu", "memory"):
            text = getattr(self, field)
            if QUANTITY.fullmatch(text) is None:
                raise InvalidInput(f"{field}: {text!r}, expected an amount such as '500m' or '10Gi'")
        if not 1 <= self.replicas <= REPLICAS_MAX:
            raise InvalidInput(f"replicas: {self.replicas}, expected 1 to {REPLICAS_MAX}")
        if self.replicas > 1 and not self.store_secret:
            raise InvalidInput(
                f"replicas: {self.replicas}, expected 1 with SQLite",
                hint="several replicas share a PostgreSQL database: --store-secret NAME",
            )
        if self.shadow and self.replicas > 1:
            raise InvalidInput(f"replicas: {self.replicas}, expected 1 for a shadow")
        return self


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the chart's values."""
    name = {"type": "string", "pattern": f"^({NAME.pattern})?$"}
    amount = {"type": "string", "pattern": f"^{QUANTITY.pattern}$"}
    fields: dict[str, Any] = {
        "image": {"type": "string", "minLength": 1},
        "replicas": {"type": "integer", "minimum": 1, "maximum": REPLICAS_MAX},
        "store_secret": {**name, "description": "Secret with the key `url`, of a PostgreSQL database"},
        "storage": amount,
        "cpu": amount,
        "memory": amount,
        "cluster_config": {**name, "description": "ConfigMap with the key `cluster.yaml`"},
        "queue_config": {
            "type": "string",
            "pattern": f"^{NAME.pattern}$",
            "description": "ConfigMap with the key `queues.yaml`, followed while it is there",
        },
        "network_policy": {"type": "boolean"},
    }
    several = {"properties": {"replicas": {"minimum": 2}}}
    stored = {"properties": {"store_secret": {"minLength": 1}}}
    return {
        "$schema": "https://json-schema.org/draft-07/schema#",
        "type": "object",
        "additionalProperties": False,
        "properties": {**fields, "global": {"type": "object"}},
        "if": several,
        "then": stored,
    }
