"""Answers about sessions of web pages. Times are unix milliseconds."""

import msgspec


class LoginLink(msgspec.Struct, frozen=True):
    """A code that begins one session, once."""

    code: str
    path: str
    """The page that it leads to."""
    expires_ms: int


class SessionView(msgspec.Struct, frozen=True):
    """A session that has begun."""

    token: str
    user: str
    expires_ms: int
    path: str = "/"
    """The page to go on with."""
