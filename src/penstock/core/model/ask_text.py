"""What jobs ask for, in words: only what was asked is said."""

from penstock.core.model.jobs import GangAsk
from penstock.core.model.quantities import format_milli, format_size
from penstock.core.model.resources import ISOLATION_LEVELS, DeviceAsk, Isolation, ReplicaAsk, Resources
from penstock.core.model.selectors import terms_text
from penstock.core.model.words import counted

UNSAID = ("pods",)
"""Extended resources that every replica takes one of: only a shortage of them is worth a word."""


def gang_text(gang: GangAsk) -> str:
    """Return what a gang asks for, such as `4 replicas of 8 devices and 16 CPUs`; one replica is not counted."""
    groups = [(gang.replicas, gang.each), *((group.replicas, group.each) for group in gang.others)]
    if len(groups) == 1 and gang.replica_total == 1 and not gang.elastic:
        return replica_text(gang.each)
    if gang.elastic:
        return f"{gang.replicas} to {gang.replicas_max} replicas of {replica_text(gang.each)}"
    return ", plus ".join(f"{counted(number, 'replica')} of {replica_text(each)}" for number, each in groups)


def replica_text(each: ReplicaAsk) -> str:
    """Return what one replica asks for, such as `2 devices of model a100, 8 CPUs and 16 GiB of memory`."""
    parts = [device_text(each.devices)] if each.devices is not None else []
    parts += host_parts(each.host)
    if not parts:
        return "no devices, CPUs or memory"
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def host_parts(host: Resources) -> list[str]:
    """Return the amounts of a node that are not 0, each in words."""
    found = []
    if host.cpu_milli:
        found.append(f"{format_milli(host.cpu_milli)} CPU{'s' * (host.cpu_milli != 1000)}")
    if host.memory_bytes:
        found.append(f"{format_size(host.memory_bytes)} of memory")
    if host.storage_bytes:
        found.append(f"{format_size(host.storage_bytes)} of storage")
    if host.bandwidth_bps:
        found.append(f"{host.bandwidth_bps / 10**9:.4g} Gbit/s of bandwidth")
    return found + [f"{number} x {name}" for name, number in host.extended if name not in UNSAID]


def device_text(ask: DeviceAsk) -> str:
    """Return the devices of one replica with every filter on them, such as `4 devices of model a100 or h100`."""
    if ask.profile:
        text = f"a MIG instance {ask.profile}"
    elif not ask.whole:
        text = f"{format_milli(ask.share_milli)} of a device"
        text += f" with {format_size(ask.share_memory_bytes)} of its memory" if ask.share_memory_bytes else ""
        text += " (oversubscribed memory allowed)" if ask.oversubscribe else ""
    else:
        text = counted(ask.count, "device")
    text += f" of model {' or '.join(ask.models)}" if ask.models else ""
    text += f" of vendor {ask.vendor}" if ask.vendor else ""
    text += f" of at least {format_size(ask.memory_min_bytes)} each" if ask.memory_min_bytes else ""
    if ask.capability_min != (0, 0):
        text += f" of capability {'.'.join(map(str, ask.capability_min))} or higher"
    text += f" with {isolation_text(ask.isolation)}" if ask.isolation != "none" else ""
    return text + (f" joined by {ask.link}" if ask.link else "")


def isolation_text(level: Isolation) -> str:
    """Return a required level in words: `cooperative isolation or stronger`."""
    return f"{level} isolation" + (" or stronger" if level != ISOLATION_LEVELS[-1] else "")


def placement_text(gang: GangAsk) -> str:
    """Return where the replicas of a gang may stand, such as `on one rack; nodes with gpu=fast`; empty: anywhere."""
    parts = []
    if gang.topology is not None:
        each = gang.topology.scope == "spread"
        wish = "each on a node of its own" if each else f"on one {gang.topology.scope}"
        parts.append(wish + ("" if gang.topology.required else " if possible"))
    if gang.labels_wanted:
        parts.append("nodes with " + ", ".join(f"{name}={value}" for name, value in gang.labels_wanted))
    if gang.labels_shunned:
        parts.append("not on nodes with " + ", ".join(f"{name}={value}" for name, value in gang.labels_shunned))
    if gang.label_terms:
        parts.append(f"nodes with {terms_text(gang.label_terms)}")
    terms = dict.fromkeys(each.label_terms for each in _each_of(gang) if each.label_terms)
    parts += [f"nodes with {terms_text(one)}" for one in terms]
    parts += list(dict.fromkeys(str(one) for each in _each_of(gang) for one in each.affinity))
    return "; ".join(parts)


def _each_of(gang: GangAsk) -> tuple[ReplicaAsk, ...]:
    return gang.each, *(group.each for group in gang.others)


def devices_cell(gang: GangAsk) -> str:
    """Return the devices of a gang for a cell of a table, such as `8`, `4x2`, `0.25`, `1x mig 1g.10gb`, `1x4 + 2x1`."""
    groups = [(gang.replicas, gang.each), *((group.replicas, group.each) for group in gang.others)]
    asks = [(number, each.devices) for number, each in groups if each.devices is not None]
    alone = gang.replica_total == 1
    return " + ".join(_cell(number, ask, alone=alone) for number, ask in asks)


def _cell(replicas: int, ask: DeviceAsk, *, alone: bool) -> str:
    if ask.profile:
        return f"{replicas}x mig {ask.profile}"
    each = format_milli(ask.share_milli) if not ask.whole else str(ask.count)
    return each if alone else f"{replicas}x{each}"
