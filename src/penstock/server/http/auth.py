"""Who calls: bearer tokens, kept as hashes; those of declared users in the log, that of the local user in a file."""

import contextlib
import getpass
import hashlib
import os
import secrets
from pathlib import Path

import msgspec
from msgspec.structs import replace

from penstock.core.model.access import Scope, Token
from penstock.core.model.ids import UserName
from penstock.core.model.quantities import format_time
from penstock.core.state.state import State
from penstock.core.state.tokens import local_scope, scope_of
from penstock.privatefiles import write_whole


class StoredToken(msgspec.Struct, frozen=True):
    sha256: str
    user: UserName
    role: str = "admin"


class LocalTokens:
    """The tokens in the server's own folder: a user who can read it may do everything."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._by_hash: dict[str, UserName] = {}
        with contextlib.suppress(FileNotFoundError):
            for token in msgspec.json.decode(path.read_bytes(), type=list[StoredToken]):
                self._by_hash[token.sha256] = token.user

    def ensure_local(self, plain_path: Path) -> None:
        """Make sure that `plain_path` holds a valid token of the user who runs the server."""
        with contextlib.suppress(FileNotFoundError):
            if self.user_of(plain_path.read_text(encoding="ascii").strip()) is not None:
                return
        token = new_secret()
        self._by_hash[digest_of(token)] = UserName(_local_user())
        stored = [StoredToken(digest, user) for digest, user in sorted(self._by_hash.items())]
        write_whole(self._path, msgspec.json.encode(stored))
        write_whole(plain_path, token + "\n")

    @property
    def users(self) -> frozenset[UserName]:
        """Who runs the server, or has run it."""
        return frozenset(self._by_hash.values())

    def user_of(self, token: str) -> UserName | None:
        """Return whose token this is, or None. Looked up by hash, so timing tells nothing of a token."""
        return self.user_of_digest(digest_of(token))

    def user_of_digest(self, digest: str) -> UserName | None:
        return self._by_hash.get(digest)


def scope_for(token: str, local: LocalTokens, state: State, now_ms: int) -> Scope | None:
    """Return the scope of a token; None if it is unknown, revoked or expired, or its user removed or disabled."""
    return scope_of_digest(digest_of(token), local, state, now_ms)


def scope_of_digest(digest: str, local: LocalTokens, state: State, now_ms: int) -> Scope | None:
    """Return the scope of a token that is known by its hash, as `scope_for` does."""
    owner = local.user_of_digest(digest)
    if owner is not None:
        return local_scope(owner)
    found = state.tokens.by_hash.get(digest)
    user = state.config.user_by_name.get(found.user) if found is not None else None
    if found is None or user is None or user.disabled:
        return None
    if 0 < found.expires_ms <= now_ms:
        return None
    delegated = made_by_another(found, state)
    return scope_of(user, found if delegated == found.delegated else replace(found, delegated=delegated))


def made_by_another(token: Token, state: State) -> bool:
    """Return whether a token was issued for its user by a non-administrator, directly or by way of such a token."""
    if token.delegated or token.by == token.user:
        return token.delegated
    maker = state.config.user_by_name.get(token.by)
    return maker is not None and maker.role != "admin"  # tokens of former versions do not say so


def refused_title(token: str, state: State, now_ms: int) -> str:
    """Return why a token is refused; only its holder learns that it has expired."""
    found = state.tokens.by_hash.get(digest_of(token))
    if found is not None and 0 < found.expires_ms <= now_ms:
        return f"the token has expired, {format_time(found.expires_ms)}"
    return "the token is not valid"


def new_secret() -> str:
    """Return a new token: 256 random bits."""
    return "pst_" + secrets.token_urlsafe(32)


def digest_of(token: str) -> str:
    """Return the hash kept of a token. Tokens are long and random, so a plain hash is enough."""
    return hashlib.sha256(token.encode()).hexdigest()


def _local_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid{os.getuid()}"
