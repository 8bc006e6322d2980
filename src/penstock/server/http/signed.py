"""Values that this server gives away and gets back: signed, so that nobody else can make or change one."""

import base64
import binascii
import hashlib
import hmac
from typing import TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)


def signed(prefix: str, key: bytes, value: msgspec.Struct) -> str:
    """Return `value` as text: the prefix, its bytes, and their HMAC-SHA256."""
    body = _text(msgspec.msgpack.encode(value))
    return f"{prefix}{body}.{_text(_mac(key, body))}"


def verified(prefix: str, key: bytes, text: str, kind: type[T]) -> T | None:
    """Return the value of a signed text; None when it was not signed with this key, or is of another version."""
    body, _, mac = text.removeprefix(prefix).partition(".")
    if not text.startswith(prefix) or not hmac.compare_digest(mac.encode(), _text(_mac(key, body)).encode()):
        return None
    try:
        return msgspec.msgpack.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=kind)
    except (binascii.Error, ValueError, msgspec.MsgspecError):  # of another version
        return None


def _mac(key: bytes, body: str) -> bytes:
    return hmac.digest(key, body.encode(), hashlib.sha256)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
