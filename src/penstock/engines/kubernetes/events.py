"""Events of Kubernetes: what is said about an object, for `kubectl describe` and `kubectl get events`."""

import time
from datetime import UTC, datetime
from typing import Any, Literal

from penstock.engines.kubernetes.api.client import Kind
from penstock.engines.kubernetes.asks import SCHEDULER
from penstock.engines.kubernetes.objects.common import Metadata

EVENTS = Kind("events.k8s.io", "v1", "events")
TEXT_MAX = 1_000
"""Of an event's note, 1,024 are allowed."""


def event(
    kind: Kind,
    name: str,
    about: Metadata,
    reason: str,
    text: str,
    *,
    action: str,
    severity: Literal["Warning", "Normal"] = "Warning",
) -> dict[str, Any]:
    """Return an event about an object.

    Args:
        name: of its kind, such as `Pod`.
        text: cut at `TEXT_MAX` characters.
    """
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{about.name[:200]}.{time.time_ns():x}", "namespace": about.namespace},
        "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": severity,
        "reason": reason,
        "action": action,
        "note": text[:TEXT_MAX],
        "reportingController": f"{SCHEDULER}.dev/scheduler",
        "reportingInstance": SCHEDULER,
        "regarding": {
            "apiVersion": f"{kind.group}/{kind.version}" if kind.group else kind.version,
            "kind": name,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
        },
    }
