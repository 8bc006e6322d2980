"""Python functions as jobs: the request that carries a call, and the result that the job has sent back.

What is unpickled here was made by a job of this user: its MAC has a key that only these jobs get, as a secret.
See docs/adr/0035-functions-between-a-user-and-their-own-job.md.
"""

import contextlib
import functools
import hashlib
import hmac
import os
import pickle
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock import calls, privatefiles
from penstock.api.types import LOG_READ_MAX_BYTES
from penstock.client.errors import CallFailed
from penstock.client.requests import with_surroundings
from penstock.core.model.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from penstock.client.http import ApiClient

OWN_FIELDS = ("command", "lease", "array", "groups", "replicas", "alternatives")
"""Fields of a job that a function cannot have: it is one program on one node."""
NAME_CHARACTERS = 60
SECRET_PREFIX = "sdk-"  # noqa: S105 - of names
KEY_BYTES = 32
TAIL_BYTES = 65_536
"""Of an output, in which the end of a result is looked for first."""
SEARCHED_MAX_BYTES = 64 * 2**20
"""Of an output's end, in which a result is looked for."""
PATHS_MAX = 200


class Call(NamedTuple):
    """A call of a function that was, or will be, submitted: what tells its result from anything else."""

    call_id: str
    key: str
    function: str
    """Its name, for messages."""


class Key(NamedTuple):
    """The key of a user's calls on one server."""

    value: str
    secret: str
    """Name of the secret that has it there."""


def key_for(client: "ApiClient") -> Key:
    """Return the key of the caller's functions, which only their own jobs get; it is made at the first call.

    A file of this machine that only the caller can read has a master key; each server has a key of its own, derived by
    a salt, which is part of the name of the secret. So nothing that one server knows is of use on another.

    Raises: NotPrivate; OSError; ApiProblem when the user may keep no secrets, as with a token that another user issued.
    """
    master = _master()
    me = client.me().user
    for known in client.secrets():
        if known.owner == me and not known.tenant and known.name.startswith(SECRET_PREFIX):
            salt, _, check = known.name.removeprefix(SECRET_PREFIX).partition("-")
            if hmac.compare_digest(_tag(master, "check", me, salt)[:16].encode(), check.encode()):
                return Key(_tag(master, "key", me, salt), known.name)
    salt = secrets.token_hex(8)
    key = Key(_tag(master, "key", me, salt), f"{SECRET_PREFIX}{salt}-{_tag(master, 'check', me, salt)[:16]}")
    client.set_secret(key.secret, key.value)
    return key


def _tag(master: bytes, purpose: str, user: str, salt: str) -> str:
    return hmac.new(master, f"{purpose}\0{user}\0{salt}".encode(), hashlib.sha256).hexdigest()


def _master() -> bytes:
    """Return the master key of this user on this machine. Raises: NotPrivate; OSError."""
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "penstock"
    path = folder / "functions.key"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        made = folder / f"functions.key-{secrets.token_hex(8)}"
        if not path.exists():
            made.touch(0o600, exist_ok=False)
            made.write_bytes(secrets.token_bytes(KEY_BYTES))
            try:
                os.link(made, path)  # whole or not at all, and the first of several wins
            finally:
                made.unlink()
    privatefiles.check(path)
    if path.stat().st_mode & 0o077:
        raise privatefiles.NotPrivate(f"others can read {path}, the key of your functions", hint=f"chmod 600 {path}")
    return path.read_bytes()


def call_request(
    key: Key,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    fields: Mapping[str, Any],
    python: str,
    named: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], Call]:
    """Return the job that calls a function, and what its result is known by.

    Args:
        fields: of the job, named as in a job file.
        python: program that runs the call; it needs cloudpickle and this version of Python.
        named: arguments by name.
    Raises: InvalidInput for fields that a function cannot have, and for a call that is too large or cannot be pickled.
    """
    refused = [name for name in OWN_FIELDS if name in fields]
    if refused:
        raise InvalidInput(f"{refused[0]} is given, but a function runs as one program", hint="submit a command")
    name = name_of(function)
    data = _pickled((function, tuple(arguments), dict(named or {})), name)
    call = Call(secrets.token_hex(16), key.value, name)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    carried = calls.variables_of(key.value, call.call_id, data, python=version, paths=_paths())
    job = with_surroundings({"name": name[:NAME_CHARACTERS], **fields}, {})
    if not isinstance(job.get("env"), dict):
        raise InvalidInput("env is no mapping of names to values")
    job["env"] = {**job["env"], **carried}
    job["secrets"] = {**_named_secrets(fields.get("secrets", ())), calls.KEY_VARIABLE: key.secret}
    job["command"] = [python, "-P", "-m", "penstock.calls"]
    return job, call


def name_of(function: Callable[..., Any]) -> str:
    """Return how a function is called, for the name of its job."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", type(function).__name__)
    return "function" if name == "<lambda>" else name


def _pickled(call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]], name: str) -> bytes:
    try:
        import cloudpickle
    except ImportError as error:
        hint = "pip install 'penstock[sdk]'"
        raise InvalidInput("functions need cloudpickle, which is not installed", hint=hint) from error
    try:
        plain = cloudpickle.dumps(call)
    except Exception as error:
        text = f"{name} or one of its arguments cannot be pickled: {type(error).__name__}: {error}"
        raise InvalidInput(text, hint="open files, locks and connections are made inside of the function") from error
    data = calls.packed(plain)
    if len(data) > calls.CALL_MAX_BYTES:
        text = f"{name} and its arguments have {len(data):,} bytes, pickled and compressed"
        text += f", and may have {calls.CALL_MAX_BYTES:,}"
        problem = Problem("too_large", "arguments", text, str(len(data)), "write them into a file, and pass its path")
        raise InvalidInput(text, hint=problem.hint, problems=[problem])
    return data


def _paths() -> list[str]:
    """Return the folders in which this process finds modules, so that the job finds those of the caller, too."""
    return [os.path.abspath(path) for path in sys.path if os.path.isdir(path or ".")][:PATHS_MAX]


def _named_secrets(given: Any) -> dict[str, str]:
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise InvalidInput("secrets is no list of names, nor a mapping of variables to names")
    return {name: name for name in given}


def result_in(client: "ApiClient", job_id: int, attempt: int, call: Call) -> calls.Found | None:
    """Return the result that a job wrote at the end of its output; None where there is none that can be verified."""
    _, data = client.logs(job_id, attempt, 0, 0, TAIL_BYTES)
    gathering = calls.Gathering(call.key, call.call_id)
    if len(data) < TAIL_BYTES:
        return gathering.add(data)
    sizes = [one.size_bytes for one in client.outputs(job_id) if (one.attempt, one.rank) == (attempt, 0)]
    size, back = (sizes or [0])[0], TAIL_BYTES
    while size:
        begin = max(0, size - back)
        gathering = calls.Gathering(call.key, call.call_id)
        found = _gathered(client, job_id, attempt, begin, size, gathering)
        if found is not None or begin == 0 or back >= SEARCHED_MAX_BYTES:
            return found
        back = max(4 * back, (gathering.expected + 1) * (calls.LINE_CHARACTERS + 200) + TAIL_BYTES)
    return None


def _gathered(
    client: "ApiClient", job_id: int, attempt: int, begin: int, end: int, gathering: calls.Gathering
) -> calls.Found | None:
    """Return the result in a part of an output."""
    at, rest = begin, b""
    while at < end:
        where, data = client.logs(job_id, attempt, 0, at, LOG_READ_MAX_BYTES)
        if not data:
            break
        lines, cut, tail = (rest + data).rpartition(b"\n")
        rest = tail[-calls.LINE_CHARACTERS - 200 :]
        found = gathering.add(lines) if cut else None
        if found is not None:
            return found
        at = where + len(data)
    return gathering.add(rest)


class Outcome(NamedTuple):
    """What a call came to."""

    value: Any = None
    error: BaseException | None = None
    """What the function has raised, or CallFailed."""


def outcome_of(found: calls.Found, call: Call) -> Outcome:
    """Return what a result stands for. Only for what `result_in` has returned: it is unpickled."""
    try:
        plain = calls.unpacked(found.data)
        if found.kind == calls.TEXT:
            text = plain.decode(errors="replace").rstrip()
            last = text.splitlines()[-1] if text else "it failed"
            return Outcome(error=CallFailed(f"{call.function}: {last}", text))
        value = pickle.loads(plain)  # noqa: S301 - its MAC is right
        if found.kind == calls.VALUE:
            return Outcome(value)
        raised, text = value
        raised.__cause__ = RemoteTraceback(text)
    except Exception as error:  # noqa: BLE001 - a class of the job may be missing here, or raise what it likes
        text = f"the result of {call.function} cannot be read here: {type(error).__name__}: {error}"
        return Outcome(error=CallFailed(text, ""))
    return Outcome(error=raised)


class RemoteTraceback(Exception):
    """The cause of an exception that a function has raised in its job: shows where."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'
