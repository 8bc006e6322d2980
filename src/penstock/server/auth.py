"""Who calls: bearer tokens, kept as hashes. The token of the local user is made at first start."""

import contextlib
import getpass
import hashlib
import os
import secrets
from pathlib import Path

import msgspec

from penstock.core.model.ids import UserName


class Principal(msgspec.Struct, frozen=True):
    user: UserName
    role: str = "admin"


class StoredToken(msgspec.Struct, frozen=True):
    sha256: str
    user: UserName
    role: str = "admin"


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    temporary = path.with_suffix(".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)


class Tokens:
    """The tokens that this server accepts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._by_hash: dict[str, Principal] = {}
        with contextlib.suppress(FileNotFoundError):
            for token in msgspec.json.decode(path.read_bytes(), type=list[StoredToken]):
                self._by_hash[token.sha256] = Principal(token.user, token.role)

    def ensure_local(self, plain_path: Path) -> None:
        """Make sure that `plain_path` holds a valid token of the user who runs the server."""
        with contextlib.suppress(FileNotFoundError):
            if self.principal(plain_path.read_text(encoding="ascii").strip()) is not None:
                return
        token = "pst_" + secrets.token_urlsafe(32)
        user = UserName(_local_user())
        self._by_hash[_hash(token)] = Principal(user)
        stored = [StoredToken(digest, p.user, p.role) for digest, p in sorted(self._by_hash.items())]
        write_private(self._path, msgspec.json.encode(stored).decode("ascii"))
        write_private(plain_path, token + "\n")

    def principal(self, token: str) -> Principal | None:
        """Return whose token this is, or None. Looked up by hash, so timing tells nothing of a token."""
        return self._by_hash.get(_hash(token))


def ensure_agent_token(path: Path) -> str:
    """Return the token with which this server's agents prove themselves, made at first start."""
    with contextlib.suppress(FileNotFoundError):
        found = path.read_text(encoding="ascii").strip()
        if found:
            return found
    token = secrets.token_urlsafe(32)
    write_private(path, token + "\n")
    return token


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _local_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid{os.getuid()}"
