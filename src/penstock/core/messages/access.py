"""Requests about tokens, secrets and notifications, and their answers."""

import msgspec

from penstock.core.model.access import Scope, Token
from penstock.core.model.ids import TenantName, UserName
from penstock.core.model.notifications import Subscription
from penstock.core.model.secrets import Secret


class IssueToken(msgspec.Struct, frozen=True):
    """The caller makes the token's secret and takes its hash."""

    token: Token
    maker: Scope | None = None
    """Scope of the token that makes it: the new one reaches no further. None: no limit."""


class RevokeToken(msgspec.Struct, frozen=True):
    token_id: str
    by: UserName


TokenRequest = IssueToken | RevokeToken


class TokenDone(msgspec.Struct, frozen=True):
    """It is in the log. `found` is False when there was no such token."""

    found: bool = True


class SetSecret(msgspec.Struct, frozen=True):
    """Sealed by the caller."""

    secret: Secret
    administrator: bool = False
    """The caller administers the cluster: it has no share, and may use the reserve."""


class RemoveSecret(msgspec.Struct, frozen=True):
    tenant: TenantName
    owner: UserName
    name: str
    by: UserName


class ResealSecrets(msgspec.Struct, frozen=True):
    """The same values, sealed with another key. Secrets set or removed in between are left as they are."""

    former: tuple[Secret, ...]
    sealed: tuple[Secret, ...]
    former_subscriptions: tuple[Subscription, ...] = ()
    sealed_subscriptions: tuple[Subscription, ...] = ()
    """Those with their destinations sealed anew."""


SecretRequest = SetSecret | RemoveSecret | ResealSecrets


class SecretDone(msgspec.Struct, frozen=True):
    """It is in the log. `found` is False when there was no such secret."""

    found: bool = True


class SetNotification(msgspec.Struct, frozen=True):
    """Its destination is sealed by the caller."""

    subscription: Subscription
    administrator: bool = False
    """The caller administers the cluster: it has no share, and may use the reserve."""


class RemoveNotification(msgspec.Struct, frozen=True):
    owner: UserName
    name: str
    by: UserName


NotificationRequest = SetNotification | RemoveNotification


class NotificationDone(msgspec.Struct, frozen=True):
    """It is in the log. `found` is False when there was no such choice."""

    found: bool = True
