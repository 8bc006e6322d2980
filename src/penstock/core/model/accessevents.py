"""Events about who may do what: tokens and secrets."""

from penstock.core.model.access import Token
from penstock.core.model.event import Event
from penstock.core.model.ids import TenantName, UserName
from penstock.core.model.secrets import Secret


class TokenIssued(Event, tag=True, frozen=True, omit_defaults=True):
    """A token that speaks for a user; its secret was shown once and is known to nobody here."""

    token: Token


class TokenRevoked(Event, tag=True, frozen=True, omit_defaults=True):
    token_id: str
    by: UserName = UserName("")


class SecretSet(Event, tag=True, frozen=True, omit_defaults=True):
    """A value that jobs are given; nobody can read it here."""

    secret: Secret


class SecretRemoved(Event, tag=True, frozen=True, omit_defaults=True):
    tenant: TenantName
    owner: UserName
    name: str
    by: UserName = UserName("")
