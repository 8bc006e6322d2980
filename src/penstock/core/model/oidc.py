"""The identity provider by which people sign in to the pages (OpenID Connect), as an administrator declares it."""

import msgspec

from penstock.core.model.access import Level, User
from penstock.core.model.ids import UserName

CALLBACK = "/login/callback"
"""The page that a provider sends people back to, below the address of the pages."""


class IdentityProvider(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who says who somebody is; without an issuer nobody signs in this way."""

    issuer: str = ""
    """The URL below which the provider describes itself."""
    client_id: str = ""
    client_secret_file: str = ""
    """A file of the server's machine; empty: the secret below, or none (a public client, with PKCE alone)."""
    client_secret_name: str = ""
    """Name of the secret in the vault, one of `client_secret_owner`'s own."""
    client_secret_owner: UserName = UserName("")
    name: str = ""
    """What the pages call it; empty: the issuer's host."""
    claim: str = "preferred_username"
    """The claim of the ID token that names the user."""
    domain: str = ""
    """Names come as `NAME@domain`; those of other domains are refused."""
    users: tuple[tuple[str, UserName], ...] = ()
    """The user of a value of the claim, where it is not the user's name."""
    groups_claim: str = "groups"
    groups: tuple[str, ...] = ()
    """Who is in none of these groups is refused; none: the provider's word is enough."""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    level: Level = "write"
    """Of the sessions."""
    session_ms: int = 12 * 3_600_000
    """After this long the provider is asked again, however often the session was renewed."""
    addresses: tuple[str, ...] = ()
    """Addresses of the pages that it may send people back to; none: the host that they came to."""

    def user_of(self, value: str) -> UserName | None:
        """Return the user that a value of the claim stands for; None: it is not one of the declared domain."""
        for known, user in self.users:
            if known == value:
                return user
        if not self.domain:
            return UserName(value)
        name, at, domain = value.rpartition("@")
        return UserName(name) if at and domain.lower() == self.domain.lower() else None


def refusal(user: User | None, name: str) -> str:
    """Return why an identity gets no session; empty: its user is declared and enabled."""
    if user is None:
        return f"there is no user '{name[:80]}' here"
    return f"the user '{name}' is disabled" if user.disabled else ""
