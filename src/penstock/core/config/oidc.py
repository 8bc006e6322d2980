"""The `oidc` section of a cluster file: the identity provider by which people sign in to the pages."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from penstock.core.config.fields import NAMES, STRING, Field, Section, duration, label, text, word
from penstock.core.config.reader import Reader
from penstock.core.model.access import LEVELS
from penstock.core.model.ids import UserName
from penstock.core.model.oidc import IdentityProvider
from penstock.core.model.secrets import NAME, NAME_EXPECTED

URL_MAX = 500
ENTRIES_MAX = 1_000
USERS_MAX = 10_000
SESSION_MAX_MS = 7 * 86_400_000
LOOPBACK = ("127.0.0.1", "::1", "localhost")
ISSUER = "an https URL without a query, such as https://login.example.org/realms/lab"
ADDRESS = "an https address of these pages, such as https://penstock.example.org"
_CLAIM = re.compile(r"[A-Za-z0-9_.:/-]{1,100}")
_SCOPE = re.compile(r"[!#-\[\]-~]{1,100}")


def is_secure_url(url: str) -> bool:
    """Return whether a URL is one of https, or of this machine, without user, query and fragment."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    plain = url.isascii() and url.isprintable() and not set(url) & set(' @?#\\"<>') and len(url) <= URL_MAX
    return plain and bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK))


def _url(about: str, expected: str) -> Field:
    def read(reader: Reader, field: str, value: Any) -> str:
        if not isinstance(value, str) or not is_secure_url(value):
            reader.wrong(field, value, expected, hint="http is accepted on loopback alone")
        return str(value)

    return Field(read, STRING, about)


def _addresses(reader: Reader, field: str, value: Any) -> tuple[str, ...]:
    found = _texts(reader, field, value, ADDRESS)
    for index, one in enumerate(found):
        if not is_secure_url(one):
            reader.wrong(f"{field}[{index}]", one, ADDRESS, hint="http is accepted on loopback alone")
    return tuple(one.rstrip("/") for one in found)


def _texts(reader: Reader, field: str, value: Any, expected: str) -> tuple[str, ...]:
    """Read a list of different, short texts."""
    texts = isinstance(value, list) and all(isinstance(one, str) and 0 < len(one) <= URL_MAX for one in value)
    if not texts or len(value) > ENTRIES_MAX or len(set(value)) != len(value):
        reader.wrong(field, value, f"a list of different texts, each {expected}")
        return ()
    return tuple(value)


def _groups(reader: Reader, field: str, value: Any) -> tuple[str, ...]:
    return _texts(reader, field, value, "the name of a group")


def _scopes(reader: Reader, field: str, value: Any) -> tuple[str, ...]:
    found = _texts(reader, field, value, "a scope such as email")
    if found and ("openid" not in found or not all(map(_SCOPE.fullmatch, found))):
        reader.wrong(field, value, "scopes without spaces, of which one is openid")
    return found


def _users(reader: Reader, field: str, value: Any) -> tuple[tuple[str, UserName], ...]:
    if not isinstance(value, Mapping) or len(value) > USERS_MAX:
        reader.wrong(field, value, "a mapping of the claim's values to users, such as {a.smith@example.org: ann}")
        return ()
    found = {}
    for known, user in value.items():
        if not isinstance(known, str) or not isinstance(user, str) or not 0 < len(known) <= URL_MAX or not user:
            reader.wrong(f"{field}.{str(known)[:80]}", user, "the name of a user")
        else:
            found[known] = UserName(user)
    return tuple(sorted(found.items()))


def _claim(reader: Reader, field: str, value: Any) -> str:
    if not isinstance(value, str) or not _CLAIM.fullmatch(value):
        reader.wrong(field, value, "the name of a claim, such as preferred_username or email")
        return "preferred_username"
    return value


def _path(reader: Reader, field: str, value: Any) -> str:
    found: str = reader.text(field, value, "", 4_096)
    if not found.startswith("/"):
        reader.wrong(field, value, "the whole path of a file of the server's machine")
    return found


def _secret_name(reader: Reader, field: str, value: Any) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        shown = "a text" if isinstance(value, str) else value  # the secret itself, by mistake
        reader.wrong(field, shown, f"the name of a secret: {NAME_EXPECTED}", hint="penstock secret set keeps secrets")
        return ""
    return value


def _check(reader: Reader, found: IdentityProvider) -> None:
    if not found.issuer:
        reader.wrong("issuer", "nothing", ISSUER)
    if not found.client_id:
        reader.wrong("client_id", "nothing", "the id of this client at the provider")
    if found.client_secret_name and found.client_secret_file:
        reader.wrong("client_secret_name", found.client_secret_name, "this or client_secret_file, not both")
    if bool(found.client_secret_name) != bool(found.client_secret_owner):
        reader.wrong(
            "client_secret_owner", found.client_secret_owner, "the user whose own secret client_secret_name is"
        )
    if not 60_000 <= found.session_ms <= SESSION_MAX_MS:
        reader.wrong("session", f"{found.session_ms} ms", "1m to 7d")


OIDC = Section(
    IdentityProvider,
    {
        "issuer": _url("URL of the identity provider; its description is read below it", ISSUER),
        "client_id": text("id of this client at the provider", most=256),
        "client_secret_file": Field(
            _path, STRING, "file of the server's machine with the client's secret (a public client)"
        ),
        "client_secret_name": Field(_secret_name, STRING, "name of a secret with it instead (`penstock secret set`)"),
        "client_secret_owner": text("user whose own secret that is: an administrator", most=256),
        "name": label("what the pages call the provider (its host)"),
        "claim": Field(_claim, STRING, "claim of the ID token that names the user"),
        "domain": text(
            "the claim is `NAME@DOMAIN` of this domain; others are refused (the claim is the name)", most=253
        ),
        "users": Field(_users, NAMES, "users by values of the claim, where those are not their names", write=dict),
        "groups_claim": Field(_claim, STRING, "claim with the groups of the user"),
        "groups": Field(
            _groups, {"type": "array", "items": STRING}, "one of these groups is needed to sign in (any)", write=list
        ),
        "scopes": Field(_scopes, {"type": "array", "items": STRING}, "what the provider is asked for", write=list),
        "level": word("level of the sessions, as that of a token", LEVELS, "write"),
        "session": duration("after this long people sign in again", at="session_ms", example="12h"),
        "addresses": Field(
            _addresses,
            {"type": "array", "items": STRING},
            "addresses of the pages that the provider may send people back to (the host that they came to)",
            write=list,
        ),
    },
    _check,
)
