"""Slurm's lists of trackable resources: `cpu=100,mem=1000G,gres/gpu:a100=8`.

Source: https://slurm.schedmd.com/tres.html
"""

from typing import NamedTuple

from penstock.core.config.queues import AMOUNT_MAX
from penstock.formats.slurm import gres_count, size_bytes, tres_items
from penstock.migrate.model import Amount
from penstock.migrate.report import SourcePlace

WORDS_MAX = 1_000
_GPU = "gres/gpu"


class Tres(NamedTuple):
    """The maxima in a list, and its words without a quota in Penstock."""

    limits: tuple[Amount, ...]
    rest: tuple[str, ...]
    models: tuple[str, ...]


def read_tres(place: SourcePlace, key: str, text: str) -> Tres:
    """Return the maxima of a list of resources. `=-1` and `=` mean no limit.

    Raises: ImportFault for a word that is no `resource=amount`, or an amount that is none.
    """
    limits: dict[tuple[str, str], Amount] = {}
    rest: list[str] = []
    try:
        items = list(tres_items(text))
    except ValueError as error:
        raise place.fault(key, error, "resources such as cpu=100 or gres/gpu:a100=8") from None
    if len(items) > WORDS_MAX:
        raise place.fault(key, text, f"at most {WORDS_MAX} resources")
    for name, amount in items:
        if amount in ("", "-1"):
            continue
        try:
            found = _amount(name.lower(), amount)
        except ValueError:
            expected = "a whole number, for mem with a unit such as 1000G"
            raise place.fault(key, f"{name}={amount}", expected) from None
        if found is None:
            rest.append(f"{name}={amount}")
        else:
            limits[found.resource, found.flavour] = found
    models = tuple(sorted(flavour for _, flavour in limits if flavour))
    return Tres(tuple(limits.values()), tuple(rest), models)


def _amount(name: str, text: str) -> Amount | None:
    if name == "mem":
        return Amount("memory", max=size_bytes(text))
    if name == "cpu":
        return Amount("cpus", max=_milli(text))
    if name == _GPU:
        return Amount("devices", max=_milli(text))
    if name.startswith(_GPU + ":"):
        return Amount("devices", name.removeprefix(_GPU + ":"), max=_milli(text))
    return None


def _milli(text: str) -> int:
    found = gres_count(text) * 1000
    if found > AMOUNT_MAX:
        raise ValueError(text)
    return found
