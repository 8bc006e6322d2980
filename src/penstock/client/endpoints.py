"""Where servers answer, and whom to trust there: told by a data folder, or by an address that somebody gave."""

import ipaddress
import json
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from penstock.core.errors import InvalidInput, PenstockError


class NotTrusted(PenstockError):
    """The server shows a certificate that nobody who is trusted has signed, or one for another name."""

    code = "not_trusted"


class Endpoint(NamedTuple):
    """Where a server answers, and how to be sure that it is the one."""

    host: str
    port: int
    security: ssl.SSLContext | None = None
    server_name: str = ""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parsed(url: str, ca: Path | None, *, insecure: bool) -> Endpoint:
    """Return the server at an address. Raises: InvalidInput for one that cannot be used; NotTrusted."""
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidInput(f"'{url}' is no address of a server: {error}") from error
    if parts.scheme not in ("http", "https") or not host or parts.path not in ("", "/"):
        raise InvalidInput(f"'{url}' is no address of a server", hint="such as https://penstock.example.org:8443")
    if parts.scheme == "https":
        return Endpoint(host, port or 443, trusting(ca))
    if not insecure and not _is_loopback(host):
        hint = "use https, or PENSTOCK_INSECURE=1 where something else encrypts"
        raise InvalidInput(f"{url} would send the token for everybody to read", hint=hint)
    return Endpoint(host, port or 80)


def running_on(data: Path) -> list[dict[str, Any]]:
    """Return what the servers on a data folder say of themselves, the one that leads first."""
    found = []
    for path in (data / "server.json", *sorted(data.glob("standby-*.json"))):
        try:
            info = json.loads(path.read_bytes())
            if isinstance(info["host"], str) and isinstance(info["port"], int):
                found.append(info)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def endpoint_of(info: Mapping[str, Any]) -> Endpoint:
    """Return where the server is that says this of itself. Raises: NotTrusted."""
    if not info.get("tls"):
        return Endpoint(info["host"], info["port"])
    security = trusting(Path(os.environ.get("PENSTOCK_CA") or info["ca"]))
    return Endpoint(info["host"], info["port"], security, info["server_name"])


def trusting(ca: Path | None) -> ssl.SSLContext:
    """Return TLS settings that trust the authorities in a file, or those of the system.

    Raises: NotTrusted when the file cannot be read.
    """
    try:
        context = ssl.create_default_context(cafile=str(ca) if ca else None)
    except OSError as error:
        hint = "PENSTOCK_CA names the file of the authorities to trust"
        raise NotTrusted(f"no certificate of an authority could be read from {ca}: {error}", hint=hint) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca is not None:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a server's certificate itself may be in the file
    return context


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
