"""The field `notify` of a job file: events that go to all destinations of its user, and destinations of its own."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from penstock.core.config.fields import STRING, Field, Json, described, struct
from penstock.core.config.notifications import read_events
from penstock.core.config.reader import Reader
from penstock.core.model.dependencies import JobChannel, JobDestination
from penstock.core.model.errors import Problem
from penstock.core.model.notifications import GROUPS, JOB_EVENTS, MAIL_TYPES, NOTHING
from penstock.core.model.secrets import NAME, NAME_EXPECTED

DESTINATIONS_MAX = 4
"""Of one job."""
URL_MAX = 2_000
NAME_LOOKED_AT = 100
"""Characters of a name that are looked at: longer ones are none."""
WORDS = (*JOB_EVENTS, "end", "jobs")
KNOWN = (*WORDS, NOTHING)
CHANNELS: dict[str, JobChannel] = {"to": "own", "command": "command", "webhook": "webhook", "slack": "slack"}
"""Fields of a mapping, one of which says where to."""
SIGNED = "signing_key"
EXAMPLE = "notify: [{on: end, command: NAME}]"
KEY_HINT = "echo whsec_$(openssl rand -base64 32) | penstock secret set NAME"


class JobNotify(NamedTuple):
    events: tuple[str, ...] = ()
    destinations: tuple[JobDestination, ...] = ()


def job_notify(about: str) -> Field:
    """Events of one job, and where they go."""
    return Field(_read, _schema(), f"{about}: {', '.join(KNOWN)}")


def _read(reader: Reader, field: str, value: Any) -> JobNotify:
    items = [value] if isinstance(value, Mapping) else value
    if not isinstance(items, list) or not any(isinstance(one, Mapping) for one in items):
        return JobNotify(read_events(reader, field, value, KNOWN))
    words = [one for one in items if not isinstance(one, Mapping)]
    if len(items) - len(words) > DESTINATIONS_MAX:
        reader.wrong(field, f"{len(items) - len(words)} destinations", f"at most {DESTINATIONS_MAX}")
        return JobNotify()
    found = []
    for index, one in enumerate(items):
        if isinstance(one, Mapping):
            where = field if items is not value else f"{field}[{index}]"
            found.append(_destination(Reader(reader.path(where), reader.problems), one))
    events = read_events(reader, field, words, KNOWN) if words else ()
    return JobNotify(events, tuple(dict.fromkeys(one for one in found if one is not None)))


def _destination(reader: Reader, given: Mapping[str, Any]) -> JobDestination | None:
    reader.unknown(given, ("on", *CHANNELS, SIGNED))
    events = read_events(reader, "on", given["on"], WORDS) if "on" in given else GROUPS["end"]
    named = [name for name in CHANNELS if name in given]
    if len(named) != 1:
        where, found = reader.path(""), " and ".join(named) or "no destination"
        text = f"{where} names {found}, expected one of {', '.join(CHANNELS)}"
        reader.problems.append(Problem("bad_value", where, text, "", EXAMPLE))
        return None
    field, value = named[0], given[named[0]]
    channel = CHANNELS[field]
    if SIGNED in given and channel != "webhook":
        _wrong_key(reader, "only what goes to a webhook is signed")
        return None
    if field in ("webhook", "slack"):
        signed_by = _key(reader, given[SIGNED]) if SIGNED in given else ""
        made = _web(reader, field, channel, value, events)
        return replace(made, signed_by=signed_by) if made is not None else None
    if not isinstance(value, str) or not NAME.fullmatch(value[:NAME_LOOKED_AT]):
        what = "a command that an administrator declared" if field == "command" else "one of your notifications"
        reader.wrong(field, value, f"the name of {what}: {NAME_EXPECTED}")
        return None
    return JobDestination(events, channel, value)


def _web(reader: Reader, field: str, channel: JobChannel, value: Any, events: tuple[str, ...]) -> JobDestination | None:
    if isinstance(value, str) and len(value) <= URL_MAX and value.lower().startswith(("https://", "http://")):
        return JobDestination(events, channel, value)
    if isinstance(value, Mapping) and list(value) == ["secret"]:
        name = value["secret"]
        if isinstance(name, str) and NAME.fullmatch(name[:NAME_LOOKED_AT]):
            return JobDestination(events, channel, secret=name)
        reader.wrong(f"{field}.secret", name, f"the name of a secret: {NAME_EXPECTED}")
        return None
    hint = f"{field}: {{secret: NAME}}, which penstock secret set has set: who sees the job sees a URL in it"
    reader.wrong(field, value, f"a URL of at most {URL_MAX} characters, or {{secret: NAME}} for one", hint=hint)
    return None


def _key(reader: Reader, value: Any) -> str:
    """Return the name of the secret with the keys that sign; '' where there is none, which is said."""
    name = value["secret"] if isinstance(value, Mapping) and list(value) == ["secret"] else None
    if isinstance(name, str) and NAME.fullmatch(name[:NAME_LOOKED_AT]):
        return name
    _wrong_key(reader, "expected {secret: NAME}, a secret with a key such as whsec_...")
    return ""


def _wrong_key(reader: Reader, why: str) -> None:
    """Say what is wrong without the value, which may be a key."""
    path = reader.path(SIGNED)
    reader.problems.append(Problem("bad_value", path, f"{path}: {why}", "", KEY_HINT))


def _schema() -> Json:
    events = {"enum": [*WORDS, *MAIL_TYPES]}
    url: Json = {"anyOf": [STRING, {**struct(secret=described(STRING, "secret with the URL")), "required": ["secret"]}]}
    named: Json = {**struct(secret=described(STRING, "secret with the key, or keys")), "required": ["secret"]}
    place = struct(
        on=described({"anyOf": [STRING, {"type": "array", "minItems": 1, "items": events}]}, "which events (end)"),
        to=described(STRING, "one of your notifications, by its name"),
        command=described(STRING, "a command that an administrator declared"),
        webhook=described(url, "a URL that gets JSON, or the secret with it"),
        slack=described(url, "a URL that gets what Slack reads, or the secret with it"),
        signing_key=described(named, "what messages to the webhook are signed with"),
    )
    place["oneOf"] = [{"required": [name]} for name in CHANNELS]
    items = {"anyOf": [{"enum": [*KNOWN, *MAIL_TYPES]}, place]}
    return {"anyOf": [STRING, place, {"type": "array", "minItems": 1, "items": items}]}
