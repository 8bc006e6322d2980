"""Webhooks: which addresses may be asked, and one POST to one of them.

A user names the URL, and this server sends the request: without care, users could reach through it what only the
server can reach (server-side request forgery). So a host has to be declared by an administrator; its addresses are
looked up once, checked, and the connection goes to the very address that was checked; a redirect is not followed; of
an answer nothing but its status is shown. Signatures: https://www.standardwebhooks.com (version 1).
"""

import base64
import contextlib
import hashlib
import hmac
import http.client
import ipaddress
import re
import secrets
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from penstock.core.config.notifications import split_host
from penstock.core.model.notifications import WebhookRules
from penstock.server.services.notifying.errors import NotSent

URL_MAX = 2_000
WAIT_S = 10.0
"""For the whole request, however slowly an answer trickles in."""
KEY_BYTES = 32
KEY_PREFIX = "whsec_"
KEYS_BYTES = (16, 64)
KEY_EXPECTED = f"{KEY_PREFIX} and the base64 of {KEYS_BYTES[0]} to {KEYS_BYTES[1]} bytes"
KEYS_MAX = 4
"""Keys that sign one message: a receiver takes the former or the new one while they are exchanged."""
DEFAULT_PORTS = {"https": 443, "http": 80}
EXPECTED = "a URL such as https://hooks.example.org/..."
_SIGNS = re.compile(r"[!#-;=?-Z\[\]_a-z~]+")
"""What a URL may consist of: printable ASCII without quotes, brackets, backslash."""
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_ASSIGNED = ipaddress.ip_network("2000::/3")
_SPECIAL = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "2001::/23", "2002::/16", "3fff::/20")))
"""Of protocols, of tunnels that carry IPv4, and of documentation: `ipaddress` calls some of them global."""


class WebAddress(NamedTuple):
    """A URL that the rules permit."""

    scheme: str
    host: str
    port: int
    path: str
    """With its query."""
    internal: bool
    """An administrator declared that it may have a private address."""

    @property
    def shown(self) -> str:
        """As it may be shown: what follows the host is often a secret."""
        port = "" if self.port == DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}/..."


def read_address(url: str, rules: WebhookRules) -> WebAddress:
    """Return the parts of a URL. Raises: NotSent (for good) that says why it is not permitted, without the URL."""
    if not 0 < len(url) <= URL_MAX or not _SIGNS.fullmatch(url):
        raise NotSent(f"this is no URL of at most {URL_MAX} printable ASCII characters", hint=EXPECTED)
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower().rstrip("."), parts.port
    except ValueError:
        raise NotSent("this is no URL", hint=EXPECTED) from None
    scheme = parts.scheme.lower()
    if scheme not in DEFAULT_PORTS or not host or port == 0:
        raise NotSent("this is no URL of https", hint=EXPECTED)
    if "@" in parts.netloc:
        raise NotSent("a URL with a user or password is not accepted", hint="put a token into its path or query")
    port = port or DEFAULT_PORTS[scheme]
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if _declared(host, port, rules.internal, DEFAULT_PORTS[scheme]):
        return WebAddress(scheme, host, port, path, internal=True)
    if not _declared(host, port, rules.hosts, DEFAULT_PORTS["https"]):
        hint = "an administrator may declare it: notifications.webhooks.hosts in the cluster file"
        where = host if port == 443 else f"{host}:{port}"
        raise NotSent(f"webhooks to {where[:80]} are not permitted", hint=hint)
    if scheme != "https":
        raise NotSent(f"webhooks to {host[:80]} are not permitted by http", hint="use https")
    return WebAddress(scheme, host, port, path, internal=False)


def _declared(host: str, port: int, entries: Sequence[str], usual: int) -> bool:
    return any(_matches(host, name) and port == (its or usual) for name, its in map(split_host, entries))


def _matches(host: str, name: str) -> bool:
    if name == "*":
        return True
    return host.endswith(name[1:]) and len(host) >= len(name) if name.startswith("*.") else host == name


def is_public(address: _Address) -> bool:
    """Return whether an address is one of the public internet; of those that carry another, only `::ffff:` may be.

    Source: IANA, IPv4 and IPv6 Special-Purpose Address Registries, and IPv6 Global Unicast Address Assignments.
    """
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address not in _ASSIGNED:
            return False
    special = not address.is_global or address.is_multicast or address.is_reserved
    return not special and not any(address in network for network in _SPECIAL)


def resolved(address: WebAddress) -> str:
    """Return the address to connect to. Raises: NotSent; for good when one of the host's addresses is not public."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except (OSError, UnicodeError):
        raise NotSent(f"the name {address.host} cannot be resolved", again=True) from None
    texts = [str(to[0]).partition("%")[0] for *_, to in found]
    for text in () if address.internal else texts:
        if not is_public(ipaddress.ip_address(text)):
            hint = "an administrator may declare it: notifications.webhooks.internal in the cluster file"
            raise NotSent(f"{address.host} has an address that is not public", hint=hint)
    return texts[0]


def new_key() -> str:
    """Return a new key that signs webhooks."""
    return KEY_PREFIX + base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode("ascii")


def is_key(text: str) -> bool:
    """Return whether this is a key of the usual form."""
    try:
        raw = base64.b64decode(text.removeprefix(KEY_PREFIX), validate=True)
    except ValueError:
        return False
    return text.startswith(KEY_PREFIX) and KEYS_BYTES[0] <= len(raw) <= KEYS_BYTES[1]


def keys_of(text: str) -> list[str]:
    """Return the keys in a text, which white space divides. Raises: ValueError: not 1 to `KEYS_MAX` keys."""
    keys = text.split(maxsplit=KEYS_MAX)
    if not 0 < len(keys) <= KEYS_MAX or not all(map(is_key, keys)):
        raise ValueError(f"expected {KEY_EXPECTED}, at most {KEYS_MAX} of them")
    return keys


def signature(key: str, message_id: str, timestamp: int, body: bytes) -> str:
    """Return `v1,` and the base64 of the HMAC-SHA256 of `id.timestamp.body`."""
    raw = base64.b64decode(key.removeprefix(KEY_PREFIX))
    made = hmac.new(raw, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(made).decode("ascii")


def post(address: WebAddress, body: bytes, headers: dict[str, str]) -> None:
    """Send one request. Raises: NotSent; it may be sent again after errors that may pass."""
    to = resolved(address)
    try:
        with connected(address, to) as connection:
            connection.request("POST", address.path, body, {"Content-Type": "application/json", **headers})
            status = connection.getresponse().status
    except ssl.SSLCertVerificationError:
        raise NotSent(f"the certificate of {address.host} is not one that this server trusts", again=True) from None
    except TimeoutError:
        raise NotSent(f"{address.host} did not answer within {WAIT_S:.0f} s", again=True) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NotSent(f"{address.host} cannot be reached: {type(error).__name__}", again=True) from None
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise NotSent(f"{address.host} answered {status}: redirects are not followed", hint="set the URL it leads to")
    raise NotSent(f"{address.host} answered {status}", again=status >= 500 or status in (408, 425, 429))


@contextlib.contextmanager
def connected(address: WebAddress, to: str) -> Iterator[http.client.HTTPConnection]:
    """Yield a connection to exactly that address, which is cut when the time for it is over."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=WAIT_S)
    made = socket.create_connection((to, address.port), WAIT_S)
    late = threading.Event()

    def cut() -> None:
        late.set()
        with contextlib.suppress(OSError):
            made.shutdown(socket.SHUT_RDWR)

    watch = threading.Timer(WAIT_S, cut)
    watch.daemon = True
    watch.start()
    try:
        secure = address.scheme == "https"
        context = ssl.create_default_context() if secure else None
        connection.sock = context.wrap_socket(made, server_hostname=address.host) if context else made
        yield connection
    except (OSError, http.client.HTTPException) as error:
        if late.is_set():
            raise TimeoutError from error
        raise
    finally:
        watch.cancel()
        connection.close()
        made.close()
