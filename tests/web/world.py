"""A cluster with something on every page: racks, models, tenants, queues, users of all roles, jobs in all states."""

import math
from typing import Any

from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.testing.server import InProcessServer, NoOutputs
from penstock.training.reports import encode_line

ROLES = ("admin", "operator", "viewer", "tenant_admin", "member")
"""What the users of the world are called after."""
HOSTILE = "<img src=x onerror=alert(1)>'\"--></script><svg onload=alert(2)>"
"""A name and a label that would run, were it ever taken for markup."""
OTHER = "zebra"
"""The tenant that member and tenant_admin do not see, and a part of all that it has."""
HOUR_S = 3_600


class Reports(NoOutputs):
    """Reports of a training of two attempts, the first job's."""

    def __init__(self) -> None:
        self._written = {(1, 1): self._report(1, 140), (1, 2): self._report(120, 400)}

    def _report(self, begin: int, end: int) -> bytes:
        return b"".join(
            encode_line(
                {"time_ms": 1_000 * step, "kind": "progress", "step": step, "loss": self._loss(step)}
                | {"eval/accuracy": 1 - math.exp(-step / 90), "learning_rate": 1e-4 * (1 - step / 500), HOSTILE: 1.0}
            )
            for step in range(begin, end)
        )

    @staticmethod
    def _loss(step: int) -> float:
        return math.nan if step == 77 else 3 * math.exp(-step / 80) + 0.1 * math.sin(step) ** 2

    def listed(self, job_id: JobId) -> list[tuple[AttemptNumber, Rank, int]]:
        return [(AttemptNumber(attempt), Rank(0), 0) for job, attempt in self._written if job == job_id]

    def read_report(
        self, job_id: JobId, attempt: AttemptNumber, rank: Rank, offset: int, limit: int
    ) -> tuple[int, bytes] | None:
        data = self._written.get((job_id, attempt))
        return None if data is None else (len(data), data[offset : offset + limit])


def declared() -> dict[str, Any]:
    """Return the cluster file."""
    nodes = [
        {
            "name": f"{rack}-n{i}",
            "cpus": 64,
            "memory": "256GiB",
            "rack": rack,
            "simulated_devices": {"count": 8, "model": model, "memory": "80GiB"},
        }
        for rack, model in (("r1", "SIM-H100"), ("r2", "SIM-H100"), ("r3", "SIM-A100"))
        for i in range(4)
    ]
    queues = [
        {"name": "research", "policy": "fair_share", "guaranteed": {"devices": 64}, "max": {"devices": 80}},
        {"name": "vision", "parent": "research", "guaranteed": {"devices": 32}},
        {"name": "speech", "parent": "research", "guaranteed": {"devices": 32}},
        {"name": "default", "policy": "priority"},
    ]
    users = [
        {"name": "admin", "role": "admin"},
        {"name": "operator", "role": "operator"},
        {"name": "viewer", "role": "viewer"},
        {"name": "tenant_admin", "tenants": {"lab": "tenant_admin"}},
        {"name": "member", "tenants": {"lab": "member"}},
        {"name": OTHER, "tenants": {OTHER: "member"}},
    ]
    billing = {
        "currency": "EUR",
        "prices": [{"per_hour": 2.5}, {"resource": "cpu", "per_hour": 0.02}],
        "issuer": {"name": "Cluster GmbH", "address": ["Weg 1", "Berlin"], "tax_id": "DE1"},
    }
    tenants = [{"name": "lab", "max": {"devices": 90}, "budgets": [{"amount": 500}]}, {"name": OTHER}]
    settings = {"default_tenant": "lab", "job_account": "nobody"}
    notifications = {"webhooks": {"hosts": ["hooks.example.org"]}}
    return {
        "settings": settings,
        "nodes": nodes,
        "queues": queues,
        "users": users,
        "tenants": tenants,
        "billing": billing,
        "notifications": notifications,
    }


def filled(server: InProcessServer) -> dict[str, str]:
    """Fill a server with jobs; returns a token of each role."""
    tokens = {role: server.client.create_token({"user": role, "level": "admin"}).token for role in (*ROLES, OTHER)}
    for i in range(24):
        own = {"tenant": "lab", "queue": ("vision", "speech")[i % 2], "name": f"pretrain-{i % 5}"}
        server.submit(own | {"command": f"sleep {600 + 300 * (i % 7)}", "devices": (1, 2, 4, 8)[i % 4]})
    server.submit({"tenant": "lab", "queue": "default", "name": "broken", "command": "exit 3", "devices": 1})
    for i in range(6):
        other = {"tenant": OTHER, "queue": "default", "name": f"{OTHER}-job-{i}", "labels": {OTHER: "1"}}
        server.submit(other | {"command": f"sleep {1200 + 60 * i}", "devices": 4})
    server.advance(2 * HOUR_S)
    for i in range(60):
        own = {"tenant": "lab", "queue": ("vision", "speech", "default")[i % 3], "name": f"sweep-{i % 9}"}
        server.submit(own | {"command": f"sleep {3600 + 60 * i}", "devices": (1, 2, 4, 8)[i % 4], "time_limit": "4h"})
    for i in range(6):
        other = {"tenant": OTHER, "queue": "default", "name": f"{OTHER}-train-{i}", "priority": "high"}
        server.submit(other | {"command": "sleep 7200", "devices": 8})
    rule = {"cron": "0 3 * * MON-FRI", "zone": "Europe/Berlin", "overlap": "skip"}
    server.client.set_schedule("nightly", {"tenant": "lab", "command": "true", "schedule": rule})
    held = server.submit(
        {"tenant": "lab", "name": HOSTILE, "labels": {"note": HOSTILE}, "command": f"echo '{HOSTILE}'", "devices": 8}
    )
    server.client.act("hold", {"ids": [str(held)]})
    server.submit({"tenant": "lab", "name": "after-it", "command": "true", "after_ok": held})
    server.client.drain("r3-n3", reason=HOSTILE)
    server.advance(300)
    return tokens
