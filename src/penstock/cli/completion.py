"""What the last word of a command line may be continued with; for the shells, which ask at each press of the tab key.

The words are in `words.json`, made from the commands by `make docs`: to load the parser would take three times as long.
Numbers and names are asked of the server, for `ASK_MAX_S` at most and in silence.
"""

import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from penstock.client import Client

VARIABLE = "PENSTOCK_COMPLETE"
"""Holds the name of the shell that asks; the words of the line are the arguments."""
WORDS = Path(__file__).with_name("words.json")
ASK_MAX_S = 0.3
"""For all that is asked of the server: meanwhile the shell takes no key."""
JOBS_MAX = 200
FILES = "files"
DEPTH_MAX = 3
"""Words of a command, such as `money invoice list`."""
_SAFE = re.compile(r"[\w.@:/+,%\[\]-]+")
"""Names that are offered: others wrote them, and a shell would run some."""
_PLACES = ("--data", "--server")


class Answer(NamedTuple):
    """What a word may be continued with, each with a few words about it."""

    found: list[tuple[str, str]]
    files: bool = False
    """Whether the shell is to offer files."""


class TooLate(Exception):
    """The server did not answer in time."""


ASKS: "dict[str, Callable[[Client], Iterable[tuple[str, str]]]]" = {
    "jobs": lambda client: ((str(job.id), f"{job.name}, {job.state}") for job in _jobs(client)),
    "job_names": lambda client: ((job.name, f"job {job.id}, {job.state}") for job in _jobs(client)),
    "nodes": lambda client: ((node.name, node.state) for node in client.nodes()),
    "queues": lambda client: ((queue.name, queue.policy) for queue in client.queues()),
    "pools": lambda client: ((pool.name, f"{pool.nodes} nodes") for pool in client.pools()),
    "tenants": lambda client: ((name, "") for name in client.me().submits),
}
"""What is asked of the server, by the word in `words.json`."""


def main() -> None:
    """Print what the last argument may be continued with: a line each, for bash without what it is about."""
    answer = answer_to(sys.argv[1:])
    plain = os.environ.get(VARIABLE) == "bash"
    lines = [word if plain else f"{word}\t{about}" for word, about in answer.found]
    sys.stdout.write("".join(f"{line}\n" for line in (*lines, *(["\tfiles"] if answer.files else []))))
    sys.stdout.flush()


def answer_to(words: Sequence[str]) -> Answer:
    """Return what the last of the words after `penstock` may be continued with; none where the line has no sense."""
    last = words[-1] if words else ""
    known: dict[str, Any] = json.loads(WORDS.read_text(encoding="utf-8"))
    given = _without_places(_joined(words[:-1]))
    if given is None:
        return Answer([], files=True)
    name, rest = _command(given, known)
    if "--" in rest:
        return Answer([], files=True)
    entry = known.get(name) if name else None
    if entry is None and (rest or last[:1] == "-"):
        return Answer([]) if rest else _options(known[""], last)
    if entry is None:
        return _members(name, known, last)
    if rest and (of := entry["options"].get(rest[-1])) is not None and of["takes"] is not None:
        return _values(of["takes"], last)
    head, equals, value = last.partition("=")
    if equals and (of := entry["options"].get(head)) is not None and of["takes"] is not None:
        answer = _values(of["takes"], value)
        return Answer([(f"{head}={word}", about) for word, about in answer.found], answer.files)
    if last.startswith("-"):
        return _options(entry, last, used=rest)
    return _values(entry["values"], last)


def _joined(words: Sequence[str]) -> list[str]:
    """Return the words with `--tenant = vision`, as bash divides them, as an option and its value."""
    return [word for place, word in enumerate(words) if word != "=" or not place or words[place - 1][:2] != "--"]


def _without_places(words: list[str]) -> list[str] | None:
    """Return the words but for those that say which server is meant, which is noted; None where a folder is missing."""
    kept, at = [], 0
    while at < len(words):
        option, equals, value = words[at].partition("=")
        if option in _PLACES and "--" not in kept:
            if not equals:
                at += 1
                if at == len(words):
                    return None
                value = words[at]
            _note_place(option, value)
        else:
            kept.append(words[at])
        at += 1
    return kept


def _note_place(option: str, value: str) -> None:
    from penstock.cli import place
    from penstock.core.model.errors import PenstockError

    with contextlib.suppress(PenstockError):  # of two servers, the first is asked
        place.named(data=Path(value)) if option == "--data" else place.named(server=value)


def _command(words: list[str], known: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the name of the command that the words begin with, or of a group, and the words after it."""
    for count in range(min(len(words), DEPTH_MAX), 0, -1):
        name = " ".join(words[:count])
        if name in known or any(one.startswith(f"{name} ") for one in known):
            return name, words[count:]
    return "", words


def _members(group: str, known: dict[str, Any], last: str) -> Answer:
    """Return the commands of a group, or those at the top, and the groups there."""
    found: dict[str, str] = {}
    for name, entry in known.items():
        if name and (not group or name.startswith(f"{group} ")):
            rest = name.removeprefix(group).strip()
            word, _, member = rest.partition(" ")
            found.setdefault(word, known[""]["groups"].get(word, "") if member else entry["about"])
    return Answer([(word, about) for word, about in found.items() if word.startswith(last)])


def _options(entry: dict[str, Any], last: str, used: Sequence[str] = ()) -> Answer:
    """Return the options that go on so, but for those of which one was given, each by its longest name."""
    found = []
    for name, option in entry["options"].items():
        again = option["again"] or not {name, option["as"]} & set(used)
        if name.startswith(last) and again and (name == option["as"] or len(last) > 1):
            found.append((name, option["about"]))
    return Answer(found)


def _values(kind: str | list[str], last: str) -> Answer:
    if isinstance(kind, list):
        return Answer([(word, "") for word in kind if word.startswith(last)])
    if kind in ASKS:
        return Answer([(word, about) for word, about in asked(kind) if word.startswith(last)])
    return Answer([], files=kind == FILES)


def asked(kind: str) -> list[tuple[str, str]]:
    """Return what the server knows of a kind of things; nothing where it cannot be asked, or takes too long."""
    from penstock.cli.place import client_of
    from penstock.core.model.errors import PenstockError
    from penstock.core.model.foreign import one_line

    before = signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, ASK_MAX_S)
    try:
        client = client_of()
        client.timeout_s = ASK_MAX_S
        named = dict(ASKS[kind](client))
    except (PenstockError, TooLate):
        return []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return [(word, one_line(about)) for word, about in named.items() if _SAFE.fullmatch(word)]


def _stop(number: int, frame: FrameType | None) -> None:
    raise TooLate


def _jobs(client: "Client") -> Iterable[Any]:
    return client.jobs(sort="newest", limit=JOBS_MAX).jobs
