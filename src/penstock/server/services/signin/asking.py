"""Requests to an identity provider: bounded in time and size, without redirects."""

import http.client
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec

from penstock.core.config.oidc import is_secure_url
from penstock.server.services.notifying.errors import NotSent
from penstock.server.services.notifying.webhook import DEFAULT_PORTS, WAIT_S, WebAddress, connected, resolved
from penstock.server.services.signin.errors import ProviderFailed

ANSWER_MAX_BYTES = 512 * 1024


class Answered(NamedTuple):
    status: int
    said: dict[str, Any]
    """The JSON of the answer; empty where it is none."""


def ask(url: str, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None) -> Answered:
    """Return the answer to one GET, or to a POST of a form. At most `WAIT_S` each for the name, and for the rest.

    Args:
        url: of https, or of this machine; an administrator declared it, or the provider whom they declared.
    Raises: ProviderFailed.
    """
    if not is_secure_url(url):
        raise ProviderFailed("the identity provider names an address that is none of https")
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme]
    address = WebAddress(parts.scheme, host, port, parts.path or "/", internal=True)
    sent = {"Accept": "application/json", "User-Agent": "penstock", **(headers or {})}
    body = None if form is None else urlencode(form)
    if body is not None:
        sent["Content-Type"] = "application/x-www-form-urlencoded"
    try:
        with connected(address, resolved(address)) as connection:
            connection.request("GET" if body is None else "POST", address.path, body, sent)
            response = connection.getresponse()
            data = response.read(ANSWER_MAX_BYTES + 1)
    except NotSent as error:
        raise ProviderFailed(str(error)) from None
    except ssl.SSLCertVerificationError:
        raise ProviderFailed(f"the certificate of {host} is not one that this server trusts") from None
    except TimeoutError:
        raise ProviderFailed(f"{host} did not answer within {WAIT_S:.0f} s") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ProviderFailed(f"{host} cannot be reached: {type(error).__name__}") from None
    if len(data) > ANSWER_MAX_BYTES:
        raise ProviderFailed(f"{host} answered with more than {ANSWER_MAX_BYTES // 1024} KiB")
    return Answered(response.status, _json(data))


def _json(data: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
