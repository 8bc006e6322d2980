"""Changes of what is declared that cost the server most; all but one are dry runs."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.server.costs.cases import EITHER, GOOD, REFUSED, Case, sending

OPERATION, PATH = "POST /config", "/config"


def _chain_of_queues() -> Any:
    return {"queues": [{"name": "q0"}, *({"name": f"q{i}", "parent": f"q{i - 1}"} for i in range(1, 10_000))]}


def _most_of_all() -> Any:
    return {
        "users": [{"name": f"u{i}", "tenants": {"t": "member"}} for i in range(10_000)],
        "tenants": [{"name": "t"}, *({"name": f"t{i}"} for i in range(9_999))],
        "pools": [{"name": f"p{i}"} for i in range(10_000)],
    }


def _unknown_tenants() -> Any:
    users = [{"name": f"u{i}", "tenants": {f"team-{i:05}": "member"}} for i in range(5_000)]
    return {"users": users, "tenants": [{"name": f"team_{i:05}"} for i in range(1_000)]}


def _many_quotas() -> Any:
    return {"queues": [{"name": f"q{i}", "max": {f"pool/devices:m{j}": j for j in range(30)}} for i in range(3_000)]}


def _unknown_fields() -> Any:
    return {f"queus{i}": 1 for i in range(50_000)}


def _too_many_queues() -> Any:
    return {"queues": [{"name": f"q{i}"} for i in range(100_001)]}


def _many_prices() -> Any:
    one = {"resource": "cpu", "per_hour": 1}
    return {"billing": {"prices": [{**one, "from": f"20{i % 90 + 10}-01-01T00:00Z"} for i in range(50_000)]}}


FILES: dict[str, Callable[[], Any]] = {
    "a chain of 10,000 queues": _chain_of_queues,
    "10,000 users, tenants and pools": _most_of_all,
    "users of unknown tenants": _unknown_tenants,
    "many quotas": _many_quotas,
    "50,000 unknown fields": _unknown_fields,
    "100,001 queues": _too_many_queues,
    "many prices": _many_prices,
}


def cases() -> Iterator[Case]:
    for name, body in FILES.items():
        asked = sending("POST", PATH, lambda body=body: {"config": body(), "dry_run": True})
        yield Case(OPERATION, name, "admin", asked, EITHER)
    nested = "&a0 [x]" + "".join(f", &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}, *a{i - 1}]" for i in range(1, 14))
    yield _declares("a text that names itself again and again", {"set": [f"settings.heartbeat=[{nested}]"]})
    yield _declares("1,000 changes", {"set": [f"queue.queue{i % 100}.weight={i}" for i in range(1_000)]}, GOOD)
    yield _declares("1,001 changes", {"set": ["settings.defrag=true"] * 1_001}, beyond=True)
    yield _declares("1,000 entries", {"add": [f"user.new{i}" for i in range(1_000)]}, GOOD)
    yield _declares("a value of 2 MB", {"set": ["settings.heartbeat=[" + "a, " * 700_000 + "a]"]})
    yield _declares("a path of 500,000 parts", {"set": ["settings" + ".x" * 500_000 + "=1"]})
    yield _declares("a change that it applies", {"set": ["settings.defrag=true"], "dry_run": False}, GOOD)
    over = sending("POST", PATH, lambda: b" " * (16 * 2**20 + 1))
    yield Case(OPERATION, "a body over 16 MiB", "admin", over, REFUSED, beyond=True)
    large = sending("POST", PATH, lambda: json.dumps({"config": _many_quotas()}).encode())
    yield Case(OPERATION, "by who may not", "tenant_admin", large, frozenset({403}), beyond=True)


def _declares(name: str, body: dict[str, Any], statuses: frozenset[int] = REFUSED, *, beyond: bool = False) -> Case:
    made = {"dry_run": True, **body}
    return Case(OPERATION, name, "admin", sending("POST", PATH, lambda: made), statuses, beyond)
