"""Events about access: tokens, secrets, notifications that users choose, and refused attempts."""

from typing import Literal

import msgspec

from penstock.core.model.access import Token
from penstock.core.model.event import Event
from penstock.core.model.ids import TenantName, UserName
from penstock.core.model.notifications import Subscription
from penstock.core.model.secrets import Secret


class TokenIssued(Event, tag=True, frozen=True, omit_defaults=True):
    """A token that acts for a user; its secret was shown once and is not stored."""

    token: Token


class TokenRevoked(Event, tag=True, frozen=True, omit_defaults=True):
    """The token is refused from here on."""

    token_id: str
    by: UserName = UserName("")


class SecretSet(Event, tag=True, frozen=True, omit_defaults=True):
    """A value for jobs, sealed: it cannot be read from the log."""

    secret: Secret


class SecretRemoved(Event, tag=True, frozen=True, omit_defaults=True):
    """A secret that no live job needs is gone."""

    tenant: TenantName
    owner: UserName
    name: str
    by: UserName = UserName("")


class NotificationSet(Event, tag=True, frozen=True, omit_defaults=True):
    """A user chose which events are sent to them, and where to; the place is sealed."""

    subscription: Subscription


class NotificationRemoved(Event, tag=True, frozen=True, omit_defaults=True):
    """Nothing more is sent for it."""

    owner: UserName
    name: str
    by: UserName = UserName("")


AccessKind = Literal[
    "login_failed",
    "act_refused",
    "node_refused",
    "node_claimed_more",
    "secret_key_rotated",
    "authority_replaced",
    "certificate_replaced",
]
"""No valid token; an act beyond the caller's rights; a refused agent, or one that claimed more of its node than is
known of it; another key of all secrets; another authority or server certificate."""


class AccessEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """Refused attempts of one subject, and their number."""

    subject: str
    """A user, a node, or the network that a caller without a valid token came from; `others`: all beyond a bound."""
    what: str
    count: int
    first_ms: int
    last_ms: int


class AccessNoted(Event, tag=True, frozen=True, omit_defaults=True):
    """Attempts of one kind since the last such record: for administrators. Nothing secret is in it."""

    kind: AccessKind
    entries: tuple[AccessEntry, ...]


AccessEvent = (
    TokenIssued | TokenRevoked | SecretSet | SecretRemoved | AccessNoted | NotificationSet | NotificationRemoved
)
