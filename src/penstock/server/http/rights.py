"""Who may call each operation: a role, and the level of the token. What an answer shows is limited beside that.

docs/api.md is made from this table; `tests/docs/test_reference.py` calls every operation as every role to compare.
"""

from typing import Literal, NamedTuple

from penstock.core.model.access import Level

Role = Literal["tenant viewer", "member", "tenant_admin", "viewer", "operator", "admin"]
"""The first three in a tenant, the others in the cluster."""
ROLES: tuple[Role, ...] = ("tenant viewer", "member", "tenant_admin", "viewer", "operator", "admin")


class Right(NamedTuple):
    """What a caller needs. `text` is for people, without a full stop."""

    text: str
    roles: frozenset[Role] = frozenset(ROLES)
    level: Level = "read"


def _of(text: str, level: Level, *roles: Role) -> Right:
    return Right(text, frozenset(roles), level)


PUBLIC = Right("no token")
SEEN = Right("any token; shows what its user sees")
CALLING = Right("any token")
CODE = Right("the code of a one-time link, instead of a token")
IDENTIFIED = Right("the code of the identity provider, instead of a token")
NOTIFYING = Right("any user for own ones, with a token that is not limited to tenants", frozenset(ROLES), "write")
SUBMITTING = _of("`member`, `tenant_admin` of the job's tenant; `admin`", "write", "member", "tenant_admin", "admin")
SENDING = _of("who submits, for their own jobs", "write", "member", "tenant_admin", "admin")
ACTING = _of(
    "`member` for own jobs; `tenant_admin` for those of the tenant; `operator`, `admin`",
    "write",
    *("member", "tenant_admin", "operator", "admin"),
)
WHOLE = _of("a role in the cluster, with a token that is not limited to tenants", "read", "viewer", "operator", "admin")
OPERATING = _of("`operator`, `admin`, with a token that is not limited to tenants", "write", "operator", "admin")
ADMINISTERING = _of("`admin`, with a token that is not limited to tenants", "admin", "admin")
ISSUING = Right(
    "any user for own tokens; `tenant_admin` for users of the tenant alone; `admin`", frozenset(ROLES), "admin"
)
KEEPING = _of(
    "own secrets: who submits; those of a tenant: its `tenant_admin`, level `admin`",
    "write",
    *("member", "tenant_admin", "admin"),
)

RIGHTS: dict[str, Right] = {
    "POST /jobs": SUBMITTING,
    "GET /jobs": SEEN,
    "GET /jobs/{job_id}": SEEN,
    "GET /jobs/{job_id}/explanation": SEEN,
    "GET /jobs/{job_id}/events": SEEN,
    "GET /jobs/{job_id}/outputs": SEEN,
    "GET /jobs/{job_id}/logs": SEEN,
    "GET /jobs/{job_id}/logs/search": SEEN,
    "GET /jobs/{job_id}/attempts": SEEN,
    "GET /jobs/{job_id}/series": SEEN,
    "GET /jobs/{job_id}/reported": SEEN,
    "GET /jobs/{job_id}/eta": SEEN,
    "GET /jobs/{job_id}/diagnosis": SEEN,
    "POST /jobs/{job_id}/cancel": ACTING,
    "POST /jobs/{job_id}/checkpoint": ACTING,
    "POST /jobs/actions": ACTING,
    "GET /snapshots": SENDING,
    "DELETE /snapshots/{name}": SENDING,
    "POST /snapshots": SENDING,
    "POST /snapshots/chunks": SENDING,
    "GET /health": PUBLIC,
    "GET /me": SEEN,
    "GET /cluster": SEEN,
    "GET /nodes": SEEN,
    "GET /nodes/{node}": SEEN,
    "GET /nodes/{node}/devices/{index}": SEEN,
    "GET /devices": SEEN,
    "POST /nodes/{node}/drain": OPERATING,
    "POST /joined-nodes": ADMINISTERING,
    "GET /joined-nodes": ADMINISTERING,
    "DELETE /joined-nodes/{node}": ADMINISTERING,
    "POST /nodes/{node}/devices/{index}/close": OPERATING,
    "POST /nodes/{node}/devices/{index}/open": OPERATING,
    "GET /schema/job": SEEN,
    "GET /schema/cluster": SEEN,
    "GET /queues": SEEN,
    "GET /pools": SEEN,
    "GET /alerts": SEEN,
    "GET /defrag": WHOLE,
    "GET /cycle": WHOLE,
    "POST /plan": SUBMITTING,
    "GET /eta": SEEN,
    "GET /eta/calibration": SEEN,
    "GET /events": SEEN,
    "GET /events/stream": SEEN,
    "GET /changes": SEEN,
    "GET /counts": SEEN,
    "GET /bill": SEEN,
    "GET /accounts": SEEN,
    "POST /accounts/{tenant}/credits": ADMINISTERING,
    "GET /ledger": SEEN,
    "POST /ledger/{record}/reversal": ADMINISTERING,
    "GET /invoices": SEEN,
    "POST /invoices": ADMINISTERING,
    "GET /invoices/{number}": SEEN,
    "POST /invoices/{number}/payments": ADMINISTERING,
    "POST /invoices/{number}/corrections": ADMINISTERING,
    "GET /tokens": SEEN,
    "POST /tokens": ISSUING,
    "DELETE /tokens/{token_id}": ISSUING,
    "POST /login-links": CALLING,
    "POST /logins": CODE,
    "POST /sessions": CALLING,
    "GET /oidc": PUBLIC,
    "POST /oidc/start": PUBLIC,
    "POST /oidc/finish": IDENTIFIED,
    "GET /schedules": SEEN,
    "GET /schedules/{name}": SEEN,
    "PUT /schedules/{name}": SUBMITTING,
    "POST /schedules/{name}/actions": ACTING,
    "DELETE /schedules/{name}": ACTING,
    "GET /notifications": SEEN,
    "PUT /notifications/{name}": NOTIFYING,
    "DELETE /notifications/{name}": NOTIFYING,
    "POST /notifications/{name}/test": NOTIFYING,
    "GET /secrets": SEEN,
    "PUT /secrets/{name}": KEEPING,
    "DELETE /secrets/{name}": KEEPING,
    "POST /secret-key": ADMINISTERING,
    "GET /timeline": SEEN,
    "GET /series": SEEN,
    "POST /whatif": WHOLE,
    "GET /whatif": WHOLE,
    "GET /whatif/{whatif_id}": WHOLE,
    "DELETE /whatif/{whatif_id}": WHOLE,
    "GET /usage": SEEN,
    "GET /waste": SEEN,
    "GET /quotas": SEEN,
    "GET /config": WHOLE,
    "POST /config": ADMINISTERING,
}
