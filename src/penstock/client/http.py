"""The operations of the API: answers as typed values, errors as exceptions."""

import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import msgspec

from penstock.api import types as api
from penstock.api.invoices import InvoiceList
from penstock.api.jobs import ActionAnswer, AttemptList, JobSeriesList, LogMatches, ReportedList
from penstock.api.quotas import PoolList, QuotaList
from penstock.api.usage import UsageList, WasteList
from penstock.client import proof
from penstock.client.endpoints import Endpoint, endpoint_of, parsed, running_on, trusted_by
from penstock.client.errors import ServerNotRunning
from penstock.client.history import HistoryCalls
from penstock.client.standing import StandingCalls
from penstock.core.model.actions import JobAction
from penstock.core.model.answers import Alert, PlanAnswer, PoolStats, Score
from penstock.core.model.errors import PenstockError
from penstock.core.model.explanation import Explanation

if TYPE_CHECKING:  # and imported by the methods that return them: few programs need them
    from penstock.api.devices import DeviceCurve, DeviceList
    from penstock.api.scheduling import CycleView, DefragList
    from penstock.api.sessions import LoginLink
    from penstock.api.snapshots import ChunksAnswer, NewSnapshot, SnapshotAnswer
    from penstock.core.model.events import Record


class ApiClient(HistoryCalls, StandingCalls):
    """Talks to one server, or to another of the same cluster that it knows of."""

    @classmethod
    def of(cls, data: Path, *, token: str | None = None) -> Self:
        """Return a client of the server that runs on the data folder `data`: by its Unix socket there.

        A server without one is asked by TCP, where it proves to be that server. Servers elsewhere that it says lead are
        asked by TLS, trusting the authorities of that folder, or those in the file that PENSTOCK_CA names.

        Raises: ServerNotRunning; NotTrusted when the authorities' file cannot be read, or others may write the folder.
        """
        found = running_on(data)
        if not found:
            raise ServerNotRunning(f"no server runs on {data}", hint="start one: penstock up")
        if token is None:
            try:
                token = _token_in(data)
            except OSError as error:
                raise PenstockError(f"the token {data / 'token'} cannot be read: {error.strerror}") from error
        client = cls._to(endpoint_of(found[0], data), token)
        client._data, client._authorities = data, trusted_by(found[0])
        return client

    @classmethod
    def at(cls, url: str, *, token: str, ca: Path | None = None, insecure: bool = False) -> Self:
        """Return a client of the server at an address such as `https://penstock.example.org:8443`.

        Args:
            url: several addresses, separated by commas, are servers of one cluster: whichever leads is asked.
            ca: file of the authorities to trust; by default those that the system trusts.
            insecure: send the token over plain HTTP, too, where others can read it, or run what answers.
        Raises: InvalidInput for an address that cannot be used; NotTrusted when `ca` cannot be read.
        """
        first, *others = [parsed(each.strip(), ca, insecure=insecure) for each in url.split(",")]
        client = cls._to(first, token)
        client._others = [first, *others]
        return client

    @classmethod
    def _to(cls, at: Endpoint, token: str) -> Self:
        client = cls(at.host, at.port, token, insecure=True)
        client._at = at
        return client

    # Jobs.

    def submit_request(self, request: Any, *, idempotency_key: str | None = None) -> api.SubmitAnswer:
        """Submit a job request (plain data, as in a job file). Retried safely under one idempotency key."""
        key = idempotency_key or uuid.uuid4().hex
        return self._call("POST", "/jobs", api.SubmitAnswer, body=request, headers={"Idempotency-Key": key})

    def declare_snapshot(self, wanted: "NewSnapshot") -> "SnapshotAnswer":
        """Declare a snapshot of a folder; the answer says what the server lacks of it. `send_folder` does it all."""
        from penstock.api.snapshots import SnapshotAnswer

        return self._call("POST", "/snapshots", SnapshotAnswer, body=wanted, again=True)

    def send_chunks(self, content: bytes) -> "ChunksAnswer":
        """Send contents for a snapshot: each chunk after its length (4 bytes, the highest first)."""
        from penstock.api.snapshots import ChunksAnswer

        data = self._request("POST", "/snapshots/chunks", content=content, again=True)
        return msgspec.json.decode(data, type=ChunksAnswer)

    def plan(self, request: Any) -> PlanAnswer:
        """Return the forecast for a submit of `request`; nothing is submitted."""
        return self._call("POST", "/plan", PlanAnswer, body=request)

    def job_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of job files."""
        return self._call("GET", "/schema/job", dict[str, Any])

    def etas(self, max_age_ms: int | None = None) -> api.EtaList:
        """Return estimated starts of waiting jobs, no older than `max_age_ms`."""
        query = {} if max_age_ms is None else {"max_age": max_age_ms}
        return self._call("GET", "/eta", api.EtaList, query=query)

    def eta_calibration(self) -> Score:
        """Return the accuracy of past estimates of starts."""
        return self._call("GET", "/eta/calibration", Score)

    def jobs(self, /, **query: Any) -> api.JobList:
        """Return a page of jobs that match: `state`, `search`, `sort`, `limit`, `cursor`, `totals_by`, and others."""
        return self._call("GET", "/jobs", api.JobList, query=query)

    def listed(self, /, path: str, **query: Any) -> dict[str, Any]:
        """Return a list as plain data: its rows have what `fields` names, as in `listed("jobs", fields="id,name")`."""
        return self._call("GET", f"/{path}", dict[str, Any], query=query)

    def job(self, job_id: int) -> api.JobView:
        return self._call("GET", f"/jobs/{job_id}", api.JobView)

    def explain(self, job_id: int) -> Explanation:
        return self._call("GET", f"/jobs/{job_id}/explanation", Explanation)

    def cancel(self, job_id: int) -> None:
        """Ask a job to end; asked again, or of one that has ended, it changes nothing."""
        self._call("POST", f"/jobs/{job_id}/cancel", api.DoneAnswer, again=True)

    def act(
        self,
        action: JobAction,
        select: Mapping[str, Any],
        *,
        change: Mapping[str, Any] | None = None,
        dry_run: bool = False,
        expect: int | None = None,
    ) -> ActionAnswer:
        """Do one action with all live jobs of a selection: `{"ids": ["3", "5-9"]}`, `{"name": "a*"}`, `{"all": True}`.

        Args:
            change: for `edit`, the new values.
            dry_run: only count.
            expect: refuse if another number of jobs matches.
        """
        body = {"action": action, "select": select, "set": change or {}, "dry_run": dry_run, "expect": expect}
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        return self._call("POST", "/jobs/actions", ActionAnswer, body=body, headers=headers)

    def outputs(self, job_id: int) -> list[api.OutputRef]:
        return self._call("GET", f"/jobs/{job_id}/outputs", api.OutputList).outputs

    def logs(
        self, job_id: int, attempt: int, rank: int, offset: int = 0, limit: int = api.LOG_READ_MAX_BYTES
    ) -> tuple[int, bytes]:
        """Return (where it begins, the next piece of an output), b'' at its present end; up to `limit` bytes."""
        query = {"attempt": attempt, "rank": rank, "offset": offset, "limit": limit}
        with self._lock:
            data = self._request("GET", f"/jobs/{job_id}/logs", query=query)
            return self._log_offset, data

    def search_log(self, /, job_id: int, attempt: int, rank: int, text: str, **query: Any) -> LogMatches:
        """Return lines of an output that have a text, the last first; `regex`, `ignore_case`, `before`, `limit`."""
        wanted = {"attempt": attempt, "rank": rank, "q": text, **query}
        return self._call("GET", f"/jobs/{job_id}/logs/search", LogMatches, query=wanted)

    def attempts(self, job_id: int, attempt: int = 0) -> AttemptList:
        """Return the timeline of a job, with the ranks of one attempt, by default the last."""
        return self._call("GET", f"/jobs/{job_id}/attempts", AttemptList, query={"attempt": attempt})

    def series(self, job_id: int) -> JobSeriesList:
        """Return what a job's programs told over time, and its size."""
        return self._call("GET", f"/jobs/{job_id}/series", JobSeriesList)

    def reported(self, job_id: int, rank: int = 0) -> ReportedList:
        """Return the curves of the numbers that one rank of a job reports, such as its loss."""
        return self._call("GET", f"/jobs/{job_id}/reported", ReportedList, query={"rank": rank})

    def checkpoint(self, job_id: int) -> None:
        """Ask a running program to save and carry on."""
        self._call("POST", f"/jobs/{job_id}/checkpoint", api.DoneAnswer)

    def job_events(self, job_id: int) -> "list[Record]":
        from penstock.core.model.events import Record

        return self._call("GET", f"/jobs/{job_id}/events", list[Record])

    # The cluster.

    def cluster(self) -> api.ClusterView:
        return self._call("GET", "/cluster", api.ClusterView)

    def nodes(self) -> list[api.NodeView]:
        return self._call("GET", "/nodes", api.NodeList).nodes

    def node(self, name: str) -> api.NodeView:
        return self._call("GET", f"/nodes/{quote(name, safe='')}", api.NodeView)

    def node_list(self, /, **query: Any) -> api.NodeList:
        """Return a page of nodes that match, with counts of all that do."""
        return self._call("GET", "/nodes", api.NodeList, query=query)

    def devices(self, /, **query: Any) -> "DeviceList":
        """Return a page of devices that match, with what they report at present, and counts of all that do."""
        from penstock.api.devices import DeviceList

        return self._call("GET", "/devices", DeviceList, query=query)

    def device(self, node: str, index: int) -> "DeviceCurve":
        """Return one device with the curves of its last hour."""
        from penstock.api.devices import DeviceCurve

        return self._call("GET", f"/nodes/{quote(node, safe='')}/devices/{index}", DeviceCurve)

    def drain(
        self, node: str, *, on: bool = True, evict: bool = False, reason: str = "", evict_after_ms: int = 0
    ) -> None:
        """Close a node, or open it; with `evict` its jobs are asked to move, or after `evict_after_ms`."""
        query: dict[str, Any] = {"on": str(on).lower(), "evict": str(evict).lower(), "reason": reason}
        query["evict_after"] = evict_after_ms
        self._call("POST", f"/nodes/{quote(node, safe='')}/drain", api.DoneAnswer, query=query)

    def close_device(self, node: str, index: int, *, reason: str = "", evict: bool = False) -> api.DeviceAnswer:
        """Close a device until a user opens it; with `evict` its jobs are asked to move."""
        query = {"reason": reason, "evict": str(evict).lower()}
        path = f"/nodes/{quote(node, safe='')}/devices/{index}/close"
        return self._call("POST", path, api.DeviceAnswer, query=query)

    def open_device(self, node: str, index: int, *, reason: str = "") -> api.DeviceAnswer:
        """Open a device at once; the answer has a note where a fault closes it again."""
        path = f"/nodes/{quote(node, safe='')}/devices/{index}/open"
        return self._call("POST", path, api.DeviceAnswer, query={"reason": reason})

    def queues(self) -> list[api.QueueView]:
        return self._call("GET", "/queues", api.QueueList).queues

    def alerts(self) -> list[Alert]:
        """Return the alerts, most severe first."""
        return self._call("GET", "/alerts", api.AlertList).alerts

    def cycle(self) -> "CycleView":
        """Return what the last scheduling cycle decided."""
        from penstock.api.scheduling import CycleView

        return self._call("GET", "/cycle", CycleView)

    def defrag(self) -> "DefragList":
        """Return what moving jobs would gain; nothing moves."""
        from penstock.api.scheduling import DefragList

        return self._call("GET", "/defrag", DefragList)

    def usage(self, /, by: str = "tenant", **query: Any) -> UsageList:
        """Return allocated and used time; `since` and `until` are times with their offset."""
        return self._call("GET", "/usage", UsageList, query={"by": by, **query})

    def usage_table(self, /, kind: str, by: str = "tenant", **query: Any) -> bytes:
        """Return the same as csv or parquet."""
        return self._request("GET", "/usage", query={"by": by, "format": kind, **query})

    def waste(self, /, by: str = "tenant", **query: Any) -> WasteList:
        """Return allocated but unused time, and its cost; by default since the present month began."""
        return self._call("GET", "/waste", WasteList, query={"by": by, **query})

    def waste_table(self, /, kind: str, by: str = "tenant", **query: Any) -> bytes:
        """Return the same as csv or parquet."""
        return self._request("GET", "/waste", query={"by": by, "format": kind, **query})

    def bills(self, tenant: str = "", month: str = "") -> api.BillList:
        """Return what tenants owe for a month such as `2026-11`, by default for the present one."""
        wanted = {"tenant": tenant, "month": month}
        return self._call("GET", "/bill", api.BillList, query={name: text for name, text in wanted.items() if text})

    # Money.

    def accounts(self, tenant: str = "") -> api.AccountList:
        return self._call("GET", "/accounts", api.AccountList, query={"tenant": tenant} if tenant else None)

    def add_credit(self, tenant: str, credit: Mapping[str, Any]) -> api.MoneyAnswer:
        """Add a credit: amount, reference, kind, expires, note. The same reference again changes nothing."""
        return self._call("POST", f"/accounts/{quote(tenant, safe='')}/credits", api.MoneyAnswer, body=credit)

    def journal(self, tenant: str = "", after: int = 0) -> api.Journal:
        """Return the ledger's entries after a record."""
        query = {"after": after, "limit": 10_000, **({"tenant": tenant} if tenant else {})}
        return self._call("GET", "/ledger", api.Journal, query=query)

    def reverse(self, record: int, reason: str) -> api.MoneyAnswer:
        """Take back the credit or payment of a record; once."""
        return self._call("POST", f"/ledger/{record}/reversal", api.MoneyAnswer, body={"reason": reason})

    def invoices(self, tenant: str = "", *, only_open: bool = False) -> InvoiceList:
        """Return the newest invoices and credit notes, or those with an amount due, and the sums due."""
        query = {"limit": 1_000, **({"tenant": tenant} if tenant else {}), **({"open": True} if only_open else {})}
        return self._call("GET", "/invoices", InvoiceList, query=query)

    def invoice_document(self, number: str, kind: str, language: str = "en") -> bytes:
        """Return an invoice as json, html, pdf or csv."""
        query = {"format": kind, "language": language}
        return self._request("GET", f"/invoices/{quote(number, safe='')}", query=query)

    def issue_invoice(self, tenant: str) -> api.MoneyAnswer:
        return self._call("POST", "/invoices", api.MoneyAnswer, body={"tenant": tenant})

    def pay_invoice(self, number: str, amount: str, reference: str) -> api.MoneyAnswer:
        body = {"amount": amount, "reference": reference}
        return self._call("POST", f"/invoices/{quote(number, safe='')}/payments", api.MoneyAnswer, body=body)

    def correct_invoice(self, number: str, reason: str, amount: str | None = None) -> api.MoneyAnswer:
        """Issue a credit note for an amount before tax, or for all that is left of an invoice."""
        body = {"reason": reason, "amount": amount}
        return self._call("POST", f"/invoices/{quote(number, safe='')}/corrections", api.MoneyAnswer, body=body)

    # Configuration.

    def pools(self) -> list[PoolStats]:
        """Return what each pool has, and how much of it is given out."""
        return self._call("GET", "/pools", PoolList).pools

    def quotas(self) -> QuotaList:
        return self._call("GET", "/quotas", QuotaList)

    def config(self) -> api.ConfigView:
        return self._call("GET", "/config", api.ConfigView)

    def configure(self, change: Mapping[str, Any]) -> api.ConfigPlan:
        """Plan or apply a change: config (a whole cluster file), set, remove, base, dry_run."""
        return self._call("POST", "/config", api.ConfigPlan, body=change)

    # Access.

    def me(self) -> api.Me:
        return self._call("GET", "/me", api.Me)

    def login_link(self, path: str = "/") -> "LoginLink":
        """Return a code that signs a browser in as the caller, once: the page is `ADDRESS/login#CODE`."""
        from penstock.api.sessions import LoginLink

        return self._call("POST", "/login-links", LoginLink, body={"path": path})

    def create_token(self, wanted: Mapping[str, Any]) -> api.TokenMade:
        """Make a token: user, level, tenants, days, note."""
        return self._call("POST", "/tokens", api.TokenMade, body=wanted)

    def tokens(self) -> list[api.TokenView]:
        return self._call("GET", "/tokens", api.TokenList).tokens

    def revoke_token(self, token_id: str) -> None:
        self._call("DELETE", f"/tokens/{quote(token_id, safe='')}", api.DoneAnswer)

    def set_secret(self, name: str, value: str, tenant: str = "") -> api.SecretView:
        """Set a secret of a tenant, or of the caller."""
        body = {"value": value, "tenant": tenant}
        return self._call("PUT", f"/secrets/{quote(name, safe='')}", api.SecretView, body=body, again=True)

    def secrets(self) -> list[api.SecretView]:
        return self._call("GET", "/secrets", api.SecretList).secrets

    def remove_secret(self, name: str, tenant: str = "") -> None:
        query = {"tenant": tenant} if tenant else {}
        self._call("DELETE", f"/secrets/{quote(name, safe='')}", api.DoneAnswer, query=query)

    def rotate_secret_key(self) -> api.KeyRotated:
        return self._call("POST", "/secret-key", api.KeyRotated)

    def events(self, after: int = 0, limit: int = 10_000) -> "list[Record]":
        """Return the next events that the caller may see; none when there are no more."""
        return self.events_after(after, limit)[0]

    def events_after(
        self, after: int = 0, limit: int = 10_000, only: Mapping[str, Any] | None = None
    ) -> "tuple[list[Record], int]":
        """Return the next events that the caller may see, and after which event to ask for those that follow them.

        That is beyond the events of others among them: asked after the last one returned, the server reads those again.

        Args:
            only: `kind`, `job`, `since` and `until` (times with their offset).
        """
        from penstock.core.model.events import Record

        while True:
            with self._lock:
                wanted = {"after": after, "limit": limit, **(only or {})}
                found = self._call("GET", "/events", list[Record], query=wanted)
                position = max(self._looked, found[-1].seq if found else after)
            if found or position <= after:
                return found, position
            after = position

    def events_of(self, /, **query: Any) -> "list[Record]":
        """Return all events that match: `kind`, `job`, `since` and `until` (times with their offset)."""
        found: list[Any] = []
        batch, after = self.events_after(only=query)
        while batch:
            found += batch
            batch, after = self.events_after(after, only=query)
        return found

    def all_events(self) -> "Iterator[Record]":
        """Yield the whole log."""
        batch, after = self.events_after()
        while batch:
            yield from batch
            batch, after = self.events_after(after)

    def healthy(self) -> bool:
        """Return whether the server answers."""
        try:
            return bool(msgspec.json.decode(self._request("GET", "/health", token=""), type=api.Health).status)
        except PenstockError:
            return False


def _token_in(data: Path) -> str:
    """Return the token in a data folder; in another user's folder it has to be that user's, and no link to ours.

    Raises: OSError; NotTrusted.
    """
    owner = proof.owner_of(data)
    if owner == os.geteuid():
        return (data / "token").read_text(encoding="ascii").strip()
    return proof.read_own(data / "token", owner).decode("ascii").strip()
