"""Requests over one kept-alive connection, to the right server of a cluster."""

import contextlib
import http.client
import math
import random
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from penstock.api import types as api
from penstock.client.endpoints import Endpoint, Link, endpoint_of, in_the_clear, running_on, trusting
from penstock.client.errors import ApiProblem, NotProved, NotTrusted, ServerNotRunning
from penstock.core.model.errors import InvalidInput, Problem

T = TypeVar("T")
TIMEOUT_S = 60.0
PAUSE_FIRST_S, PAUSE_MOST_S = 0.1, 10.0
"""Between a refusal for now and the next try, where the answer names no time."""
NOBODY_THERE = (ConnectionRefusedError, FileNotFoundError, ProcessLookupError)
"""Why a request has surely not been heard by any server."""
REFUSED = "overloaded"
"""Code of a 503 to a request of which nothing was done."""
NAME_IT = "no token is sent there on a server's word: name it in PENSTOCK_URL, or start the servers with --tls"


class HttpCaller:
    """Sends requests to one server, and to another when that refuses the connection, or says that another leads.

    Threads may share it: their requests go one after the other. `twin` gives a connection of its own.

    Of a data folder it knows all servers that run on it, of an address those that were named with it. A token is sent
    to these, and by TLS to servers with the right certificate; never in the clear to an address that a server reports.

    Args:
        host, port: where the server listens.
        token: sent as bearer token.
        security: speak TLS with these settings; None speaks plain HTTP, to a server on this machine that runs as the
            caller or as root.
        server_name: what the certificate has to be for, where that is not `host`.
        insecure: speak plain HTTP with any server.
    Raises: InvalidInput for plain HTTP with another machine.
    """

    def __init__(
        self,
        host: str,
        port: int,
        token: str,
        *,
        timeout_s: float = TIMEOUT_S,
        security: ssl.SSLContext | None = None,
        server_name: str = "",
        insecure: bool = False,
    ) -> None:
        self._token = token
        self.timeout_s = timeout_s
        """How long a connection and each answer may take; holds from the next connection on."""
        self.patience_s = 0.0
        """For how long a request is tried again that the server refuses for now: too many, or too much to do."""
        self._lock = threading.RLock()
        self._retry_after_s: float | None = None
        self._interrupted = threading.Event()
        self._at = Endpoint(host, port, security, server_name)
        if security is None:
            self._at = in_the_clear(host, port, insecure=insecure)
        self._others: list[Endpoint] = []
        self._data: Path | None = None
        self._authorities: Path | None = None
        self._connection: Link | None = None
        self._log_offset = 0
        self._looked = 0
        """Up to which event the server looked for the last page of events."""

    @property
    def address(self) -> str:
        """Host and port of the server."""
        return f"{self._at.host}:{self._at.port}"

    def twin(self) -> Self:
        """Return another client of the same servers, by the same token, on a connection of its own."""
        made = type(self)(self._at.host, self._at.port, self._token, timeout_s=self.timeout_s, insecure=True)
        made._at, made._others, made._data = self._at, list(self._others), self._data
        made._authorities, made.patience_s = self._authorities, self.patience_s
        return made

    def _call(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        again: bool = False,
    ) -> T:
        data = self._request(method, path, query=query, body=body, headers=headers, again=again)
        return msgspec.json.decode(data, type=kind)

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
        again: bool = False,
    ) -> bytes:
        """Return the body of an answer. Without a `token` the client's own is sent; `""` sends none.

        Args:
            content: sent as it is, in place of `body`, which is sent as JSON.
            again: done twice it comes to the same; so may be repeated, as reads and requests with a key are.
        Raises: InvalidInput for a number in `body` that JSON does not know.
        """
        url = "/api/v1" + path + ("?" + urlencode(query, doseq=True) if query else "")
        token = self._token if token is None else token
        sent = {**({"Authorization": f"Bearer {token}"} if token else {}), **(headers or {})}
        payload = None
        if body is not None:
            _check_finite(body)
            payload = msgspec.json.encode(body)
            sent["Content-Type"] = "application/json"
        elif content is not None:
            payload = content
            sent["Content-Type"] = "application/octet-stream"
        repeatable = again or method == "GET" or "Idempotency-Key" in sent
        with self._lock:
            status, data = self._patiently(method, url, payload, sent, repeatable=repeatable)
        if status >= 400:
            raise problem_of(status, data, self._retry_after_s)
        return data

    def _patiently(
        self, method: str, url: str, payload: bytes | None, headers: Mapping[str, str], *, repeatable: bool
    ) -> tuple[int, bytes]:
        """Return status and answer; of a request that is refused for now, that of its last try within `patience_s`."""
        until, pause_s = time.monotonic() + self.patience_s, PAUSE_FIRST_S
        while True:
            status, data = self._anywhere(method, url, payload, headers, tries=2 if repeatable else 1)
            undone = status == 429 or (status == 503 and problem_of(status, data).details.code == REFUSED)
            if not undone and not (status == 503 and repeatable):
                return status, data
            wait_s = self._retry_after_s
            if not wait_s:
                wait_s, pause_s = pause_s, min(2 * pause_s, PAUSE_MOST_S)
            wait_s *= 1 + random.random() / 2  # noqa: S311 - so that many clients do not come back at once
            if time.monotonic() + wait_s > until:
                return status, data
            if self._interrupted.wait(wait_s):
                return status, data

    def _anywhere(
        self, method: str, url: str, payload: bytes | None, headers: Mapping[str, str], *, tries: int
    ) -> tuple[int, bytes]:
        """Return status and answer of this server, or of another where this one has surely done nothing."""
        tried: set[tuple[str, int, Path | None]] = set()
        while True:
            tried.add(self._at.place)
            try:
                status, data = self._exchange(method, url, payload, headers, tries=tries)
            except (ServerNotRunning, NotProved) as error:
                silent = tries > 1 and isinstance(error.__cause__, TimeoutError)  # it may have done it: repeated only
                unheard = isinstance(error, NotProved) or isinstance(error.__cause__, NOBODY_THERE)
                if not (silent or unheard) or not self._go_elsewhere(tried):
                    raise
                continue
            if status == 503:
                details = problem_of(status, data).details
                if details.code == "not_leader":
                    if self._go_elsewhere(tried, details.leader):
                        continue
                    if details.leader and not self._leading(details.leader):
                        raise ApiProblem(msgspec.structs.replace(details, hint=f"{details.hint}; {NAME_IT}"))
            return status, data

    def _go_elsewhere(self, tried: set[tuple[str, int, Path | None]], leader: str = "") -> bool:
        """Turn to a server that has not been tried, the one that leads first; return whether there is one."""
        known = [*self._on_folder(), *self._leading(leader), *self._others]
        found = next((endpoint for endpoint in known if endpoint.place not in tried), None)
        if found is None:
            return False
        self.close()
        self._at = found
        return True

    def _on_folder(self) -> Iterator[Endpoint]:
        """Yield where the servers on the data folder are, the one that leads first; none that cannot be trusted."""
        if self._data is None:
            return
        with contextlib.suppress(NotTrusted):
            for info in running_on(self._data):
                with contextlib.suppress(NotTrusted):
                    yield endpoint_of(info, self._data)

    def _leading(self, url: str) -> list[Endpoint]:
        """Return the leader at the reported `url`, if a token may be sent there.

        That is the case where a certificate proves the server, by authorities that are trusted with this server, too.
        In the clear it is only where the data folder or the user names that server as well.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            return []
        if not host or not port:
            return []
        if parts.scheme == "https":
            security = self._at.security
            if security is None and self._at.unix is not None and self._authorities is not None:
                security = trusting(self._authorities)
            return [Endpoint(host, port, security)] if security is not None else []
        known = (*self._on_folder(), *self._others)
        return [each for each in known if (each.host, each.port) == (host, port) and each.security is None]

    def _exchange(
        self, method: str, url: str, payload: bytes | None, headers: Mapping[str, str], *, tries: int
    ) -> tuple[int, bytes]:
        for left in reversed(range(tries)):
            try:
                connection = self._connected()
                connection.request(method, url, payload, dict(headers))
                response = connection.getresponse()
                self._log_offset = int(response.headers.get("X-Penstock-Offset", "0"))
                self._looked = int(response.headers.get("X-Penstock-Looked", "0"))
                self._retry_after_s = _seconds(response.headers.get("Retry-After"))
                return response.status, response.read()
            except ssl.SSLCertVerificationError as error:
                self.close()
                where = str(self._at)
                hint = "PENSTOCK_CA names the file of the authorities to trust: certificates/trusted.pem of the server"
                raise NotTrusted(
                    f"the server at {where} cannot be trusted: {error.verify_message}", hint=hint
                ) from error
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if not left or isinstance(error, TimeoutError) or self._interrupted.is_set():
                    where, why = str(self._at), str(error) or type(error).__name__
                    text = f"the server at {where} does not answer: {why}"
                    raise ServerNotRunning(text, hint="penstock up starts one") from error
            except BaseException:
                self.close()  # its answer may still come: the next request must not get it
                raise
        raise AssertionError("a last try returns or raises")

    def opened(self, path: str) -> http.client.HTTPResponse:
        """Return an answer to be read as it comes, of the server that answered last. The connection is its own then.

        Raises: OSError; HTTPException; ServerNotRunning; NotProved.
        """
        connection = self._connected()
        connection.request("GET", "/api/v1" + path, headers={"Authorization": f"Bearer {self._token}"})
        return connection.getresponse()

    def _connected(self) -> Link:
        """Return a connection; not one that the server has closed while it was idle, on which a request that cannot
        be repeated would fail."""
        if self._connection is not None and self._connection.is_dropped:
            self.close()
        if self._connection is None:
            self._connection = Link(self._at, self.timeout_s)
        return self._connection

    def interrupt(self) -> None:
        """Let another thread that waits for an answer get an error soon; for good: this client tries nothing again."""
        self._interrupted.set()
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    @property
    def interrupted(self) -> bool:
        return self._interrupted.is_set()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _seconds(text: str | None) -> float | None:
    """Return the seconds of a Retry-After; None where there are none (a date, as proxies send it)."""
    return float(text) if text is not None and text.isascii() and text.isdigit() else None


def _check_finite(value: Any, field: str = "") -> None:
    """Raise InvalidInput for a number that is not finite: in JSON it would be null, as if it were not given."""
    if isinstance(value, float) and not math.isfinite(value):
        text = f"{field} is {value}, expected a number"
        raise InvalidInput(text, problems=[Problem("invalid_value", field, text, str(value))])
    if isinstance(value, Mapping):
        for name, one in value.items():
            _check_finite(one, f"{field}.{name}" if field else str(name))
    elif isinstance(value, list | tuple):
        for index, one in enumerate(value):
            _check_finite(one, f"{field or 'jobs'}[{index}]")


def problem_of(status: int, data: bytes, retry_after_s: float | None = None) -> ApiProblem:
    try:
        return ApiProblem(msgspec.json.decode(data, type=api.ProblemDetails), retry_after_s=retry_after_s)
    except msgspec.MsgspecError:
        return ApiProblem(api.ProblemDetails(f"the server answered {status}", status, "unknown"))
