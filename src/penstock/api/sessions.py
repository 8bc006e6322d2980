"""Answers about sessions of web pages. Times are unix milliseconds."""

import msgspec


class LoginLink(msgspec.Struct, frozen=True):
    """A code that begins one session, once."""

    code: str
    path: str
    """The page that it leads to."""
    expires_ms: int


class OidcView(msgspec.Struct, frozen=True):
    """Whether people can sign in by an identity provider."""

    available: bool
    name: str = ""
    """What it is called."""


class SignInBegun(msgspec.Struct, frozen=True):
    """A sign-in at the identity provider that has begun: the browser keeps the verifier, and goes to the URL."""

    url: str
    state: str
    code_verifier: str
    """The verifier of PKCE (RFC 7636): sent with the code, and never before."""
    expires_ms: int


class SessionView(msgspec.Struct, frozen=True):
    """A session that has begun."""

    token: str
    """Empty with `dry_run`: it has not begun."""
    user: str
    expires_ms: int
    path: str = "/"
    """The page to go on with."""
