"""The `settings` of a cluster file, by the names of the model; those with a unit in the name also without it.

Without `_ms` they are durations (`lease_ttl: 30s`), without `_milli` numbers (`admission: 1.2`).
"""

import re
from typing import Any, get_args, get_type_hints

from penstock.core.config.fields import Field, Section, duration, flag, integer, number, text, word
from penstock.core.config.reader import Reader
from penstock.core.config.setting_texts import SETTING_TEXTS
from penstock.core.model.cluster import Settings
from penstock.core.model.expected import HOUR_MS
from penstock.core.model.quantities import format_duration, format_milli

AMOUNT_MAX = 2**53
AGENT_SERVERS_MAX = 16
_AGENT_SERVER = re.compile(r"(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9][A-Za-z0-9.-]{0,252}):[1-9][0-9]{0,4}")


def _fields() -> dict[str, Field]:
    found = {}
    for name, kind in get_type_hints(Settings).items():
        for word_of, field in _spellings(name, kind):
            found[word_of] = field
    return found


def _spellings(name: str, kind: Any) -> list[tuple[str, Field]]:
    """Return the field of a setting, and its other spelling where its name has a unit."""
    about = SETTING_TEXTS.get(name, "")  # a new one has none until `make docs`
    if name.endswith("_ms"):
        own = (name.removesuffix("_ms"), duration(about, at=name, example="30s"))
    elif name.endswith("_milli"):
        example = "a quantity such as 0.8, in steps of 0.001"
        own = (name.removesuffix("_milli"), number(about, example, high=AMOUNT_MAX, at=name))
    elif kind is bool:
        return [(name, flag(about))]
    elif kind is str:
        return [(name, text(about))]
    elif words := get_args(kind):
        return [(name, word(about, words))]
    else:
        return [(name, integer(about, 0, AMOUNT_MAX))]
    unit = "milliseconds" if name.endswith("_ms") else "thousandths"
    return [own, (name, integer(f"{own[0]} in {unit}", 0, AMOUNT_MAX, at=name).as_alias())]


def _check(reader: Reader, settings: Settings) -> None:
    parts = [getattr(settings, name) for name in Settings.__struct_fields__ if name.startswith("objective_")]
    if sum(parts) != 1000:
        reader.wrong("objective_utilisation_milli", f"a sum of {sum(parts)}", "five objectives that sum to 1000")
    if settings.lease_margin_ms >= settings.lease_ttl_ms:
        reader.wrong("lease_margin", f"{settings.lease_margin_ms} ms", "less than lease_ttl")
    for name, most, text_of in _MOST:
        if getattr(settings, name) > most:
            reader.wrong(name.rsplit("_", 1)[0], text_of(getattr(settings, name)), f"at most {text_of(most)}")
    found = settings.agent_servers.replace(",", " ").split()
    if len(found) > AGENT_SERVERS_MAX or not all(_is_address(one) for one in found):
        expected = f"up to {AGENT_SERVERS_MAX} addresses such as new.example.org:7070, with commas"
        reader.wrong("agent_servers", settings.agent_servers, expected)


def _is_address(word: str) -> bool:
    return _AGENT_SERVER.fullmatch(word) is not None and int(word.rpartition(":")[2]) < 2**16


_MOST = (
    ("predictive_share_milli", 1000, format_milli),
    ("predictive_confidence_milli", 1000, format_milli),
    ("predictive_ahead_ms", HOUR_MS, format_duration),
)


SETTINGS = Section(Settings, _fields(), _check)
