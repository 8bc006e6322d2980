"""Sessions of web pages: signed tokens that live for hours, and codes that begin one, each used once.

A session is not stored: it names the token that it was begun with by hash, or a declared user, and is as valid as that
is. So removing a token, or disabling a user, ends their sessions, and a restart of the server ends none.
"""

import hashlib
import hmac
import secrets
from collections import Counter, OrderedDict
from pathlib import Path

import msgspec
from msgspec.structs import replace

from penstock.core.model.access import LEVELS, Level, Scope, User
from penstock.core.model.ids import UserName
from penstock.core.model.oidc import IdentityProvider
from penstock.core.state.state import State
from penstock.core.state.tokens import scope_of_user
from penstock.ports import Clock
from penstock.privatefiles import write_whole
from penstock.server.http.auth import LocalTokens, digest_of, scope_of_digest
from penstock.server.http.responses import ApiError
from penstock.server.http.signed import signed, verified

PREFIX = "pss_"
KEY_BYTES = 32
SESSION_MS = 12 * 3_600_000
"""Life of a session that is not renewed."""
RENEWED_MAX_MS = 7 * 86_400_000
"""Life of a session that is renewed again and again."""
CODE_MS = 120_000
"""Life of a login code."""
CODES_MAX = 1_000
CODES_PER_USER = 16
PATH_MAX = 500
"""Characters of the page that a link leads to."""


class Session(msgspec.Struct, frozen=True, array_like=True):
    """What a session token says."""

    parent: str
    """Hash of the token that it was begun with; empty: the user was identified by an identity provider."""
    user: UserName
    level: Level
    begun_ms: int
    expires_ms: int


class LoginCode(msgspec.Struct, frozen=True):
    """What a one-time link leads to."""

    session: Session
    path: str
    expires_ms: int


class Sessions:
    """Signs sessions, and reads them. Any thread.

    Args:
        key: 32 bytes; None: a new key, with which sessions end when the server does.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(KEY_BYTES)

    @classmethod
    def kept(cls, path: Path) -> "Sessions":
        """Return sessions signed with the key in a file, which is made where it is missing or unusable."""
        try:
            key = bytes.fromhex(path.read_text(encoding="ascii").strip())
        except (FileNotFoundError, ValueError):
            key = b""
        if len(key) != KEY_BYTES:
            key = secrets.token_bytes(KEY_BYTES)
            write_whole(path, key.hex() + "\n")
        return cls(key)

    def signed(self, session: Session) -> str:
        """Return the token of a session."""
        return signed(PREFIX, self._key, session)

    def read(self, token: str, now_ms: int) -> Session | None:
        """Return what a session token says; None when it is not ours, or has expired."""
        session = verified(PREFIX, self._key, token, Session)
        return session if session is not None and now_ms < session.expires_ms else None

    def expired(self, token: str, now_ms: int) -> bool:
        """Return whether a token is one of ours whose time is over."""
        session = verified(PREFIX, self._key, token, Session)
        return session is not None and now_ms >= session.expires_ms

    def key_for(self, purpose: str) -> bytes:
        """Return a key of its own for other things that are signed."""
        return hmac.digest(self._key, purpose.encode(), hashlib.sha256)


def begun(parent: str, scope: Scope, now_ms: int) -> Session:
    """Return a new session of a token (its hash) or, with an empty hash, of an identified user."""
    return _bounded(Session(parent, scope.user, scope.level, now_ms, now_ms + SESSION_MS), scope, now_ms)


def identified(user: User, provider: IdentityProvider, now_ms: int) -> Session:
    """Return a new session of a user whom the identity provider has identified."""
    session = begun("", scope_of_user(user, provider.level), now_ms)
    return replace(session, expires_ms=min(session.expires_ms, now_ms + provider.session_ms))


def renewed(session: Session, scope: Scope, now_ms: int, most_ms: int = RENEWED_MAX_MS) -> Session:
    """Return a session with its time begun anew, at most `most_ms` after its begin."""
    until_ms = min(now_ms + SESSION_MS, session.begun_ms + most_ms)
    return _bounded(replace(session, expires_ms=max(until_ms, session.expires_ms)), scope, now_ms)


def _bounded(session: Session, scope: Scope, now_ms: int) -> Session:
    """Return a session that ends when the token does that it was begun with."""
    ends_ms = min(session.expires_ms, scope.expires_ms) if scope.expires_ms and session.parent else session.expires_ms
    return replace(session, expires_ms=max(ends_ms, now_ms))


def scope_of_session(session: Session, local: LocalTokens, state: State, now_ms: int) -> Scope | None:
    """Return the present scope of a session; None when its token is no longer valid, or its user removed.

    `expires_ms` is that of the token, or the longest life of a session without one: tokens that are made with a session
    end by then, and not with the session itself.
    """
    if session.parent:
        return scope_of_digest(session.parent, local, state, now_ms)
    scope = _scope_of_identified(session, state, now_ms)
    return None if scope is None else replace(scope, expires_ms=session.begun_ms + RENEWED_MAX_MS)


def _scope_of_identified(session: Session, state: State, now_ms: int) -> Scope | None:
    """Return the scope of a user whom the identity provider identified, as user and provider are declared now."""
    provider, user = state.config.oidc, state.config.user_by_name.get(session.user)
    if not provider.issuer or user is None or user.disabled or now_ms >= session.begun_ms + provider.session_ms:
        return None
    return scope_of_user(user, min(session.level, provider.level, key=LEVELS.index))


class LoginCodes:
    """Codes of one-time links. Lives on the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._codes: OrderedDict[str, LoginCode] = OrderedDict()

    def __len__(self) -> int:
        return len(self._codes)

    def make(self, session: Session, path: str) -> tuple[str, int]:
        """Return a code that begins `session` once, and when it expires. Raises: ApiError when there are too many."""
        now_ms = self._clock.unix_ms()
        for digest in [digest for digest, code in self._codes.items() if code.expires_ms <= now_ms]:
            del self._codes[digest]
        own = Counter(code.session.user for code in self._codes.values())[session.user]
        if own >= CODES_PER_USER or len(self._codes) >= CODES_MAX:
            hint = f"unused links end after {CODE_MS // 1000} s"
            raise ApiError("too_many_requests", f"{own} login links of yours are unused", hint=hint)
        code, expires_ms = secrets.token_urlsafe(32), now_ms + CODE_MS
        self._codes[digest_of(code)] = LoginCode(session, path, expires_ms)
        return code, expires_ms

    def known(self, code: str) -> LoginCode | None:
        """Return what a code leads to, and leave it unused; None when it is unknown, used or expired."""
        known = self._codes.get(digest_of(code))
        return known if known is not None and self._clock.unix_ms() < known.expires_ms else None

    def use(self, code: str) -> LoginCode | None:
        """Return what a code leads to, once; None when it is unknown, used or expired."""
        known = self.known(code)
        self._codes.pop(digest_of(code), None)
        return known
