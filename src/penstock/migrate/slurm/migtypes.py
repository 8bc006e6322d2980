"""GPUs that Slurm lists as MIG instances, put together to whole devices that may be cut.

Source: https://slurm.schedmd.com/gres.html#MIG_Management; profiles as in `core.place.mig`.
"""

import re
from collections.abc import Sequence

from penstock.core.config.nodes import DEVICES_PER_NODE_MAX
from penstock.core.model.resources import MIG_COMPUTE_SLICES, Device
from penstock.core.place.mig import GEOMETRIES, GIB
from penstock.formats.devices import known_of, plain_model

_PROFILE = re.compile(r"(?:(?P<model>.+)[_-])?(?P<profile>(?P<slices>[1-7])g\.[0-9]{1,3}gb(?:\+me)?)", re.IGNORECASE)


def is_instance(kind: str) -> bool:
    """Return whether a type is a MIG profile, with or without the model before it."""
    return _PROFILE.fullmatch(kind) is not None


def whole_devices(pieces: Sequence[tuple[str, int, tuple[str, ...]]]) -> tuple[Device, ...]:
    """Return the devices on which instances lie.

    Args:
        pieces: type, count and device files of each; types are those of instances.
    """
    matches = [_PROFILE.fullmatch(kind) for kind, _, _ in pieces]
    profiles = {match["profile"].lower() for match in matches if match}
    named = next((match["model"] for match in matches if match and match["model"]), "")
    cards = {card for _, _, files in pieces for card in files}
    slices = sum(int(match["slices"]) * count for match, (_, count, _) in zip(matches, pieces, strict=True) if match)
    number = len(cards) or -(-slices // MIG_COMPUTE_SLICES)
    model, memory_gib = _model(named, profiles)
    known = known_of(model)
    return tuple(
        Device(
            index=index,
            vendor="nvidia",
            model=model,
            memory_bytes=memory_gib * GIB,
            capability=known.capability if known else (0, 0),
            mig=True,
        )
        for index in range(min(number, DEVICES_PER_NODE_MAX))
    )


def _model(named: str, profiles: set[str]) -> tuple[str, int]:
    """Return the model and its memory (GiB): the first that has these profiles, named models first."""
    fitting = [g for g in GEOMETRIES if all(g.profile(profile) for profile in profiles)]
    for geometry in fitting:
        if named and geometry.name.split()[0].lower() in named.lower():
            return plain_model(named), geometry.memory_gb
    if named:
        known = known_of(named)
        return plain_model(named), known.memory_gib if known else 0
    return (fitting[0].name.split()[0].lower(), fitting[0].memory_gb) if fitting else ("gpu", 0)
