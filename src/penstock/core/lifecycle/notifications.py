"""Decisions about who hears of what. Destinations come here sealed, and stay so."""

from msgspec.structs import replace

from penstock.core.lifecycle.thresholds import too_many
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.access import NotificationDone, NotificationRequest, SetNotification
from penstock.core.messages.requests import Refusal
from penstock.core.model.errors import Problem, nearest
from penstock.core.model.events import NotificationRemoved, NotificationSet
from penstock.core.model.notifications import Subscription

OWN_MAX = 20
"""Of one user."""
SUBSCRIPTIONS_MAX = 10_000
RESERVE = 1_000
"""Beyond that, for administrators."""
HINT = "remove unused ones: penstock notify remove NAME"


def decide(tx: Transaction, request: NotificationRequest) -> NotificationDone | Refusal:
    """Carry a request out, or say why not."""
    known = tx.state.subscriptions
    if not isinstance(request, SetNotification):
        if (request.owner, request.name) not in known.by_key:
            return NotificationDone(found=False)
        tx.emit(NotificationRemoved(request.owner, request.name, request.by))
        return NotificationDone()
    wanted = request.subscription
    tenants = [tenant.name for tenant in tx.state.config.tenants]
    problem = None
    if wanted.tenant and wanted.tenant not in tenants:
        text = f"there is no tenant '{wanted.tenant}'"
        problem = Problem("unknown_tenant", "tenant", text, wanted.tenant, nearest(wanted.tenant, tenants))
    elif wanted.key not in known.by_key:
        problem = _too_many(tx, wanted, administrator=request.administrator)
    if problem is not None:
        return Refusal("invalid_input", (problem,))
    former = known.by_key.get(wanted.key)
    after = former.after if former is not None else tx.state.seq
    tx.emit(NotificationSet(replace(wanted, set_ms=tx.now_ms, after=after)))
    return NotificationDone()


def _too_many(tx: Transaction, wanted: Subscription, *, administrator: bool) -> Problem | None:
    known = tx.state.subscriptions
    return too_many(
        "notifications", wanted.name, wanted.owner,
        own=len(known.of_user(wanted.owner)), own_most=OWN_MAX,
        used=len(known.by_key), most=SUBSCRIPTIONS_MAX + (RESERVE if administrator else 0),
        hint=HINT, shares=not administrator,
    )  # fmt: skip
