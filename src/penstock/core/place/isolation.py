"""What nodes offer of isolation, in words, where a job requires more."""

from collections.abc import Iterable

from penstock.core.model.jobs import GangAsk
from penstock.core.model.resources import ISOLATION_LEVELS, Isolation
from penstock.core.model.words import agree, counted
from penstock.core.place.capacity import NodeShape


def isolation_offered(gang: GangAsk, shapes: Iterable[NodeShape]) -> str:
    """Return what devices offer at most, such as `6 devices offer at most cooperative isolation, the job requires
    driver`; '' where no device of its pool passes all other filters.

    Args:
        shapes: of the nodes to count, each node once; those of other pools are left out.
    """
    each = (gang.each, *(group.each for group in gang.others))
    asks = [one.devices for one in each if one.devices is not None and one.devices.isolation != "none"]
    known = [shape for shape in shapes if shape.pool == gang.pool]
    for ask in asks:
        devices = [device for shape in known for device in shape.devices if ask.accepts(device) == "isolation"]
        if devices:
            best: Isolation = max((device.isolation for device in devices), key=ISOLATION_LEVELS.index)
            offer = f"at most {best} isolation" if best != "none" else "no isolation of their parts"
            text = f"{counted(len(devices), 'device')} {agree('offer', len(devices))} {offer}"
            return f"{text}, the job requires {ask.isolation}"
    return ""
