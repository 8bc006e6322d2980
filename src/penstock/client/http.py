"""A synchronous client: one kept-alive connection, answers as typed values, errors as exceptions."""

import http.client
import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from penstock.api import types as api
from penstock.core.errors import PenstockError
from penstock.core.explain import Explanation
from penstock.core.model.events import Record
from penstock.core.predict.calibration import Score
from penstock.core.stuck import Alert

T = TypeVar("T")
TIMEOUT_S = 60.0


class ServerNotRunning(PenstockError):
    code = "server_not_running"


class ApiProblem(PenstockError):
    """The server refused; `details` is its answer."""

    code = "api_problem"

    def __init__(self, details: api.ProblemDetails) -> None:
        super().__init__(details.title, hint=details.hint, problems=details.problems)
        self.details = details


class Client:
    """Talks to one server. Not for use by several threads at once.

    Args:
        host, port: where the server listens.
        token: sent as bearer token.
    """

    def __init__(self, host: str, port: int, token: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self._host, self._port, self._token, self._timeout_s = host, port, token, timeout_s
        self._connection: http.client.HTTPConnection | None = None
        self._log_offset = 0

    @classmethod
    def of(cls, data: Path, *, token: str | None = None) -> "Client":
        """Return a client of the server that runs on the data folder `data`.

        Raises: ServerNotRunning.
        """
        try:
            info = json.loads((data / "server.json").read_bytes())
            host, port = info["host"], info["port"]
        except (OSError, ValueError, KeyError) as error:
            hint = "start one: penstock up"
            raise ServerNotRunning(f"no server runs on {data}", hint=hint) from error
        if token is None:
            try:
                token = (data / "token").read_text(encoding="ascii").strip()
            except OSError as error:
                raise PenstockError(f"the token {data / 'token'} cannot be read: {error.strerror}") from error
        return cls(host, port, token)

    # Jobs.

    def submit(self, request: Any, *, idempotency_key: str | None = None) -> api.SubmitAnswer:
        """Submit a job request (plain data, as in a job file). Retried safely under one idempotency key."""
        key = idempotency_key or uuid.uuid4().hex
        return self._call("POST", "/jobs", api.SubmitAnswer, body=request, headers={"Idempotency-Key": key})

    def plan(self, request: Any) -> api.PlanAnswer:
        """Return what a submit of `request` would lead to; nothing is submitted."""
        return self._call("POST", "/plan", api.PlanAnswer, body=request)

    def etas(self, max_age_ms: int | None = None) -> api.EtaList:
        """Return when waiting jobs start, as of at most so long ago."""
        query = {} if max_age_ms is None else {"max_age": max_age_ms}
        return self._call("GET", "/eta", api.EtaList, query=query)

    def eta_calibration(self) -> Score:
        """Return how right the estimates were that have come true."""
        return self._call("GET", "/eta/calibration", Score)

    def jobs(self, **query: Any) -> api.JobList:
        return self._call("GET", "/jobs", api.JobList, query=query)

    def job(self, job_id: int) -> api.JobView:
        return self._call("GET", f"/jobs/{job_id}", api.JobView)

    def explain(self, job_id: int) -> Explanation:
        return self._call("GET", f"/jobs/{job_id}/explanation", Explanation)

    def cancel(self, job_id: int) -> None:
        self._call("POST", f"/jobs/{job_id}/cancel", api.DoneAnswer)

    def outputs(self, job_id: int) -> list[api.OutputRef]:
        return self._call("GET", f"/jobs/{job_id}/outputs", api.OutputList).outputs

    def logs(self, job_id: int, attempt: int, rank: int, offset: int = 0) -> tuple[int, bytes]:
        """Return (where it begins, the next piece of an output), b'' at its present end."""
        query = {"attempt": attempt, "rank": rank, "offset": offset}
        data = self._request("GET", f"/jobs/{job_id}/logs", query=query)
        return self._log_offset, data

    def checkpoint(self, job_id: int) -> None:
        """Ask a running program to save and carry on."""
        self._call("POST", f"/jobs/{job_id}/checkpoint", api.DoneAnswer)

    def job_events(self, job_id: int) -> list[Record]:
        return self._call("GET", f"/jobs/{job_id}/events", list[Record])

    # The cluster.

    def cluster(self) -> api.ClusterView:
        return self._call("GET", "/cluster", api.ClusterView)

    def nodes(self) -> list[api.NodeView]:
        return self._call("GET", "/nodes", api.NodeList).nodes

    def drain(self, node: str, *, on: bool = True, evict: bool = False, reason: str = "") -> None:
        query = {"on": str(on).lower(), "evict": str(evict).lower(), "reason": reason}
        self._call("POST", f"/nodes/{quote(node, safe='')}/drain", api.DoneAnswer, query=query)

    def queues(self) -> list[api.QueueView]:
        return self._call("GET", "/queues", api.QueueList).queues

    def alerts(self) -> list[Alert]:
        """Return what does not go on by itself, the dearest to overlook first."""
        return self._call("GET", "/alerts", api.AlertList).alerts

    def cycle(self) -> api.CycleView:
        """Return what the last scheduling cycle decided."""
        return self._call("GET", "/cycle", api.CycleView)

    def defrag(self) -> api.DefragList:
        """Return what moving jobs would gain; nothing moves."""
        return self._call("GET", "/defrag", api.DefragList)

    def usage(self) -> list[api.UsageView]:
        return self._call("GET", "/usage", api.UsageList).tenants

    def bills(self, tenant: str = "", month: str = "") -> api.BillList:
        """Return what tenants owe for a month such as `2026-11`, by default for the present one."""
        wanted = {"tenant": tenant, "month": month}
        return self._call("GET", "/bill", api.BillList, query={name: text for name, text in wanted.items() if text})

    def events(self, after: int = 0, limit: int = 10_000) -> list[Record]:
        return self._call("GET", "/events", list[Record], query={"after": after, "limit": limit})

    def all_events(self) -> Iterator[Record]:
        """Yield the whole log."""
        after = 0
        while batch := self.events(after):
            yield from batch
            after = batch[-1].seq

    def healthy(self) -> bool:
        try:
            return self._call("GET", "/health", api.Health).status == "ok"
        except PenstockError:
            return False

    # The wire.

    def _call(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> T:
        data = self._request(method, path, query=query, body=body, headers=headers)
        return msgspec.json.decode(data, type=kind)

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        url = "/api/v1" + path + ("?" + urlencode(query) if query else "")
        sent = {"Authorization": f"Bearer {self._token}", **(headers or {})}
        payload = None
        if body is not None:
            payload = msgspec.json.encode(body)
            sent["Content-Type"] = "application/json"
        repeatable = method == "GET" or "Idempotency-Key" in sent
        status, data = self._exchange(method, url, payload, sent, tries=2 if repeatable else 1)
        if status >= 400:
            raise _problem(status, data)
        return data

    def _exchange(
        self, method: str, url: str, payload: bytes | None, headers: Mapping[str, str], *, tries: int
    ) -> tuple[int, bytes]:
        for left in reversed(range(tries)):
            if self._connection is None:
                self._connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
            try:
                self._connection.request(method, url, payload, dict(headers))
                response = self._connection.getresponse()
                self._log_offset = int(response.headers.get("X-Penstock-Offset", "0"))
                return response.status, response.read()
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if not left:
                    where, why = f"{self._host}:{self._port}", str(error) or type(error).__name__
                    text = f"the server at {where} does not answer: {why}"
                    raise ServerNotRunning(text, hint="penstock up starts one") from error
            except BaseException:
                self.close()  # its answer may still come: the next request must not get it
                raise
        raise AssertionError("a last try returns or raises")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _problem(status: int, data: bytes) -> ApiProblem:
    try:
        return ApiProblem(msgspec.json.decode(data, type=api.ProblemDetails))
    except msgspec.MsgspecError:
        return ApiProblem(api.ProblemDetails(f"the server answered {status}", status, "unknown"))
