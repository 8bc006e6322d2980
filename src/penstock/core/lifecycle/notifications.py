"""Decisions about who hears of what. Destinations come here sealed, and stay so."""

from msgspec.structs import replace

from penstock.core.lifecycle.thresholds import Holding, over_share
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
    """Return why a user may have no further one: the maximum is reached, or the rest is for others."""
    known = tx.state.subscriptions
    used, most = len(known.by_key), SUBSCRIPTIONS_MAX + (RESERVE if administrator else 0)
    own = len(known.of_user(wanted.owner))
    if own >= OWN_MAX:
        text = f"you have {own} notifications, and no more than {OWN_MAX} may be"
        return Problem("too_many_notifications", "name", text, wanted.name, HINT)
    if used >= most:
        text = f"all users together have {used} notifications, and no more may be"
        return Problem("too_many_notifications", "name", text, wanted.name, "ask an administrator to remove some")
    claims = [Holding(f"user {wanted.owner}", own)]
    if not administrator and (over := over_share(claims, used=used, most=most)) is not None:
        text = f"{over.who} has {own} notifications; the {over.left} that there may still be are for others"
        return Problem("share_used_up", "name", text, wanted.name, HINT)
    return None
