"""Seals secrets for the log, and opens them again: AES-256-GCM, with keys in a file beside the log and never in it.

The context sealed along with a value (`Secret.context`) names its owner, so that a writer of the log cannot give one
tenant's value to another. Nonces are random, 96 bits: good for 2^32 values of one key (NIST SP 800-38D).
"""

import base64
import contextlib
import fcntl
import hashlib
import hmac
import os
import secrets
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec.structs import replace

from penstock.core.model.errors import PenstockError
from penstock.core.model.secrets import Secret
from penstock.privatefiles import NotPrivate, check, open_own, write_whole

NONCE_BYTES = 12
KEY_BITS = 256


class VaultError(PenstockError):
    """A secret cannot be sealed or opened; its message names no value."""

    code = "secret_unreadable"


class Key(msgspec.Struct, frozen=True):
    id: str
    key: bytes


class Vault:
    """The keys in one file, the newest first. Any thread; several servers may share the file.

    The file is made when something is first sealed. It may be a link to a place local to this machine.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys: tuple[Key, ...] = ()

    def seal(self, secret: Secret, value: str) -> Secret:
        """Return the secret with its value, sealed with the newest key. Raises: VaultError when the file is spoilt."""
        with self._turn():
            self._keys = self._read() or self._written((_new_key(),))
        key = self._keys[0]
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = nonce + AESGCM(key.key).encrypt(nonce, value.encode(), secret.context.encode())
        return replace(secret, key_id=key.id, sealed=base64.b64encode(sealed).decode("ascii"))

    def open(self, secret: Secret) -> str:
        """Return the value. Raises: VaultError when its key is missing, or it was changed."""
        key = self._key(secret.key_id)
        if key is None:
            raise VaultError(f"the key of {secret.text} is not in {self._path.name}", hint="set it again")
        try:
            sealed = base64.b64decode(secret.sealed)
            plain = AESGCM(key.key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], secret.context.encode())
        except (InvalidTag, ValueError):
            raise VaultError(f"{secret.text} is not what was sealed", hint="set it again") from None
        return plain.decode()

    def token(self, purpose: str) -> str:
        """Return a token that only holders of the keys can make: 64 hexadecimal digits, the same for one purpose.

        Another one once there is a newer key. Raises: VaultError when the file is spoilt.
        """
        if not self._keys:
            with self._turn():
                self._keys = self._read() or self._written((_new_key(),))
        return hmac.new(self._keys[0].key, f"token {purpose}".encode(), hashlib.sha256).hexdigest()

    def add_key(self) -> None:
        """Seal with a new key from here on. Raises: VaultError."""
        with self._turn():
            self._keys = self._written((_new_key(), *self._read()))

    def keep(self, used: Collection[str]) -> int:
        """Drop the keys that seal no secret any more, but not the newest; return how many."""
        with self._turn():
            known = self._read()
            kept = tuple(key for place, key in enumerate(known) if place == 0 or key.id in used)
            if kept != known:
                self._written(kept)
            self._keys = kept
        return len(known) - len(kept)

    def _key(self, key_id: str) -> Key | None:
        for again in (False, True):
            if again:  # another server may have made it
                self._keys = self._read()
            found = next((key for key in self._keys if key.id == key_id), None)
            if found is not None:
                return found
        return None

    def _read(self) -> tuple[Key, ...]:
        try:
            check(self._path)
            return msgspec.json.decode(self._path.read_bytes(), type=tuple[Key, ...])
        except FileNotFoundError:
            return ()
        except NotPrivate as error:
            raise VaultError(error.message, hint=error.hint) from error
        except (OSError, msgspec.DecodeError) as error:
            raise VaultError(f"the keys in {self._path} cannot be read", hint="take the file from a backup") from error

    def _written(self, keys: tuple[Key, ...]) -> tuple[Key, ...]:
        write_whole(self._path.resolve(), msgspec.json.encode(keys))  # synced before anything is sealed with it
        return keys

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        descriptor = open_own(self._path.with_name(f"{self._path.name}.lock"), os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _new_key() -> Key:
    return Key(secrets.token_hex(6), AESGCM.generate_key(KEY_BITS))
