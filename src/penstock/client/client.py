"""The client of programs: finds its server, submits commands, job files and functions, and waits for many at once."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast, overload

from penstock.api import types as api
from penstock.client.http import ApiClient
from penstock.client.requests import CallFields, JobFields
from penstock.core.model.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.client.following import Follower
    from penstock.client.functions import Key
    from penstock.client.handles import Job, Jobs
    from penstock.client.snapshots import Sent

T = TypeVar("T")
PATIENCE_S = 60.0
"""For how long a client of `connect` tries a request again that is refused for now."""
Command = str | list[str]
Requests = Mapping[str, Any] | Sequence[Mapping[str, Any]]


class Client(ApiClient):
    """A synchronous client; `AsyncClient` has the same methods. Use as a context manager, or `close` it.

    Threads may share it: their requests go one after the other, on one connection that is kept open. Waiting for any
    number of jobs takes one more, on which the log is followed.
    """

    _follower: "Follower | None" = None
    _key: "Key | None" = None
    _first: "Client | None" = None
    """Of twins, the client that they share follower and key with."""

    @classmethod
    def connect(
        cls,
        url: str = "",
        *,
        data: Path | str | None = None,
        token: str | None = None,
        ca: Path | None = None,
        patience_s: float = PATIENCE_S,
    ) -> Self:
        """Return a client of the server that the command line would talk to.

        That is the one at `url` or PENSTOCK_URL, by the token in PENSTOCK_TOKEN, trusting PENSTOCK_CA; without an
        address the one on the data folder: `data`, PENSTOCK_HOME, or the user's own.

        Args:
            patience_s: for how long a request is tried again that the server refuses for now (429, 503).
        Raises: ServerNotRunning; InvalidInput without a token, or for an address that cannot be used; NotTrusted;
            NotPrivate when another user could have filled the data folder.
        """
        where = url or ("" if data is not None else os.environ.get("PENSTOCK_URL", ""))
        token = token or os.environ.get("PENSTOCK_TOKEN")
        if where:
            if not token:
                raise InvalidInput("there is no token for the server elsewhere", hint="token=, or set PENSTOCK_TOKEN")
            named = ca or os.environ.get("PENSTOCK_CA")
            insecure = os.environ.get("PENSTOCK_INSECURE") == "1"
            client = cls.at(where, token=token, ca=Path(named) if named else None, insecure=insecure)
        else:
            from penstock.privatefiles import check

            folder = Path(data or os.environ.get("PENSTOCK_HOME") or Path.home() / ".local" / "share" / "penstock")
            check(folder.absolute())
            client = cls.of(folder.absolute(), token=token)
        client.patience_s = patience_s
        return client

    def twin(self) -> Self:
        made = super().twin()
        made._first = self._first or self
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections; jobs go on. It may be used again."""
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.close()
        super().close()

    @property
    def follower(self) -> "Follower":
        """What waits for jobs."""
        from penstock.client.following import Follower

        if self._first is not None:
            return self._first.follower
        with self._lock:
            if self._follower is None:
                self._follower = Follower(self)
            return self._follower

    @property
    def function_key(self) -> "Key":
        """The key of this user's functions on this server."""
        from penstock.client.functions import key_for

        if self._first is not None:
            return self._first.function_key
        with self._lock:
            if self._key is None:
                self._key = key_for(self)
            return self._key

    # Submits.

    @overload
    def submit(self, what: Requests, *, idempotency_key: str | None = None) -> api.SubmitAnswer: ...
    @overload
    def submit(
        self, what: Path, *, idempotency_key: str | None = None, **fields: Unpack[JobFields]
    ) -> "Jobs[None]": ...
    @overload
    def submit(
        self,
        what: Command,
        *,
        array: int | str,
        idempotency_key: str | None = None,
        **fields: Unpack[JobFields],
    ) -> "Jobs[None]": ...
    @overload
    def submit(
        self, what: Command, *, idempotency_key: str | None = None, **fields: Unpack[JobFields]
    ) -> "Job[None]": ...
    @overload
    def submit(
        self,
        what: Callable[..., T],
        *arguments: Any,
        python: str | None = None,
        idempotency_key: str | None = None,
        **fields: Unpack[CallFields],
    ) -> "Job[T]": ...
    def submit(self, what: Any, *arguments: Any, idempotency_key: str | None = None, **fields: Any) -> Any:
        """Submit a function with its arguments, a command, a job file, or requests as plain data.

        Args:
            what: a function, called with `arguments` in a job (named ones by `functools.partial`); a command, as a line
                for /bin/sh or a list of words; a `Path` of a job file; or plain data, sent as it is.
            fields: of the job, named as in a job file: `devices=2, time_limit="1h"`. Where they name no `workdir`, it
                starts in the present folder; PATH and other variables that make `python` mean the same are passed on.
            array: copies with an index, of a command.
            python: the program that runs a function; it needs `penstock[sdk]` and this version of Python. By default
                this very program; `python3` where the server is not on this machine.
            idempotency_key: repeated with the same key, it submits nothing new. Each submit has one.
        Returns: a handle; for an array or a job file several; for plain data the server's answer.
        Raises: InvalidInput; ApiProblem naming all problems of the jobs.
        """
        if callable(what):
            return self._submit_function(what, arguments, fields, idempotency_key)
        if arguments:
            raise InvalidInput("arguments are for functions: a command is one line, or a list of words")
        if isinstance(what, Mapping) or (isinstance(what, Sequence) and what and isinstance(what[0], Mapping)):
            if fields:
                text = f"{next(iter(fields))} is given beside plain data, which is sent as it is"
                raise InvalidInput(text, hint="put it into the data")
            return self.submit_request(what, idempotency_key=idempotency_key)
        return self._submit_command(what, fields, idempotency_key)

    def send_folder(self, folder: Path | str = ".") -> "Sent":
        """Send a snapshot of a folder, of which only what the server lacks goes over the line, and return its name.

        A job starts in it by `workdir={"snapshot": name}`; submits of commands and job files do all this themselves.

        Raises: InvalidInput when the folder is too large, or has what cannot be in a snapshot; ApiProblem.
        """
        from penstock.client.snapshots import sent

        return sent(self, Path(folder))

    def _submit_command(self, what: Any, fields: Mapping[str, Any], key: str | None) -> "Job[None] | Jobs[None]":
        from penstock.client.requests import JOB_FILE_ENDINGS, file_request, with_surroundings
        from penstock.client.snapshots import with_snapshots

        if isinstance(what, Path):
            request = with_snapshots(self, file_request(str(what), fields, {}))
            answer = self.submit_request(request, idempotency_key=key)
            return self.handles(answer.jobs)
        if isinstance(what, str) and what.endswith(JOB_FILE_ENDINGS) and not what.strip().count(" "):
            raise InvalidInput(f"'{what}' is no command", hint=f"a job file is given as Path('{what}')")
        request = with_snapshots(self, with_surroundings({"command": what, **fields}, {}))
        jobs: Jobs[None] = self.handles(self.submit_request(request, idempotency_key=key).jobs)
        return jobs if "array" in fields else jobs[0]

    def _submit_function(
        self, function: Callable[..., T], arguments: Sequence[Any], fields: dict[str, Any], key: str | None
    ) -> "Job[T]":
        from penstock.client.bulk import prepared, submitted
        from penstock.client.snapshots import with_snapshots

        python = fields.pop("python", None)
        fields = with_snapshots(self, fields)
        return submitted(self, [prepared(self, function, arguments, fields, python)], key)[0]

    def map(
        self,
        function: Callable[..., T],
        *iterables: Iterable[Any],
        chunk_size: int = 1,
        ahead: int = 1_000,
        timeout: float | None = None,
        progress: bool = False,
        python: str | None = None,
        **fields: Unpack[CallFields],
    ) -> Iterator[T]:
        """Yield what a function returns for each item, in order, while later items are still at work.

        The first jobs are submitted by the call, later ones as results are taken. When a function raises, or the
        results are taken no further, the jobs that are left are cancelled.

        Args:
            iterables: one item of each is the arguments of one call; the shortest ends it.
            chunk_size: items of one job: many short calls are faster together.
            ahead: jobs that are submitted before their results are taken, at most.
            timeout: seconds for all results.
            progress: show a bar, on standard error or in the notebook.
            python, fields: as for `submit`.
        Raises: as `Job.result`, from the iterator; InvalidInput for a call that cannot be pickled or is too large.
        """
        from penstock.client.bulk import MapPlan, results
        from penstock.client.snapshots import with_snapshots

        whole = with_snapshots(self, fields)
        plan = MapPlan(function, iterables, chunk_size=chunk_size, ahead=ahead, python=python, fields=whole)
        plan.fill(self)
        found = results(self, plan, timeout)
        if not progress:
            return found
        from penstock.client.notebook import shown_progress

        sizes = [len(one) if isinstance(one, Sized) else None for one in iterables]
        known = [size for size in sizes if size is not None]
        return shown_progress(found, min(known) if len(known) == len(sizes) else None, "calls")

    @property
    def python(self) -> str:
        """The program that runs functions where none is named."""
        import sys

        return sys.executable if self._data is not None else "python3"

    # Handles.

    def handle(self, job: int | api.JobRef) -> "Job[None]":
        """Return the handle of a job: of its number, or of an answer's entry."""
        from penstock.client.handles import Job

        ref = api.JobRef(job, self.job(job).name) if isinstance(job, int) else job
        return Job(self, ref.id, ref.name)

    def handles(self, jobs: Iterable[int | api.JobRef]) -> "Jobs[None]":
        """Return the handles of jobs."""
        from penstock.client.handles import Jobs

        return Jobs(self, [self.handle(job) for job in jobs])

    def wait(self, jobs: "Iterable[Job[Any]]", timeout: float | None = None, *, progress: bool = False) -> None:
        """Return when all jobs have ended. One thread follows the log for all of them.

        Args:
            progress: show a bar, on standard error or in the notebook.
        Raises: TimeoutError when not all have ended after `timeout` seconds.
        """
        from penstock.client.notebook import shown_progress

        jobs = list(jobs)
        ended = self.as_completed(jobs, timeout)
        for _ in shown_progress(ended, len(jobs)) if progress else ended:
            pass

    def as_completed(self, jobs: "Iterable[Job[T]]", timeout: float | None = None) -> "Iterator[Job[T]]":
        """Yield each job when it has ended. Raises: TimeoutError when not all have after `timeout` seconds."""
        from penstock.client.handles import as_completed

        return cast("Iterator[Job[T]]", as_completed(self, list(jobs), timeout))
