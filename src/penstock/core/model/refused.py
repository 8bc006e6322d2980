"""Why nodes refuse a replica, in words: counts that add up, and verbs that agree with them."""

from collections.abc import Iterable

from penstock.core.model.words import agree, counted

REASON_TEXT: dict[str, str] = {
    "pool": "belong to another pool",
    "node_lost": "are lost",
    "node_joining": "are joining",
    "node_draining": "are being drained",
    "node_leaving": "go before it would have ended",
    "reserved": "are reserved for another tenant",
    "node_shut_to_tenant": "take no work of this tenant until checked: its jobs claimed failures there",
    "label": "do not have the labels wanted",
    "taint": "have a taint that it does not tolerate",
    "checkpoint": "do not reach the checkpoint that it continues from",
    "anti_affinity": "hold, or are near, replicas that it may not stand with",
    "affinity": "are not near the replicas that it has to stand with",
    "spread": "would have too many more of its kind than others",
    "virtualization": "do not give out such parts of devices",
    "vendor": "have devices of another vendor",
    "model": "have no device of an accepted model",
    "device_memory": "have devices with too little memory",
    "capability": "have devices of too low compute capability",
    "mig_mode": "have devices with MIG mode on, which give out MIG instances alone",
    "isolation": "isolate parts of devices less than required",
    "device_failed": "have failed devices",
    "devices_too_few": "have too few devices, even when empty",
    "devices_short": "have too few devices free",
    "device_links": "have enough devices free, but not joined as required",
    "share_short": "have no device with so large a share free",
    "profile": "have no device that offers the profile",
    "profile_short": "have no room for another instance of the profile",
    "cpu_short": "have too little CPU free",
    "memory_short": "have too little memory free",
    "storage_short": "have too little storage free",
    "bandwidth_short": "have too little network bandwidth free",
    "extended_short": "have too little {} free",
    "kept_back": "are kept back for a job that is to start before",
    "gang_short": "could take some of the replicas, but not all replicas fit together",
}
"""What nodes do, by the reason code of why they refuse a replica."""
EMPTY_TEXT: dict[str, str] = {
    "devices_too_few": "have too few devices",
    "devices_short": "have too few devices",
    "device_links": "have enough devices, but not joined as required",
    "share_short": "have no device large enough for the share",
    "profile_short": "have no device large enough for the profile",
    "cpu_short": "have too few CPUs",
    "memory_short": "have too little memory",
    "storage_short": "have too little storage",
    "bandwidth_short": "have too little network bandwidth",
    "extended_short": "have too little {}",
}
"""Of nodes that hold nothing, where the sentence says so once for all of them."""


def refused_text(refused: Iterable[tuple[str, int]], *, emptied: bool = False) -> str:
    """Return `2 nodes have too few devices free; 1 node is lost` for (reason code, nodes) pairs.

    Args:
        emptied: of nodes without jobs, said once in the sentence around it.
    """
    return "; ".join(node_text(code, nodes, emptied=emptied) for code, nodes in refused)


def node_text(code: str, nodes: int, *, emptied: bool = False) -> str:
    """Return one of these counts."""
    kind, _, name = code.partition(":")
    text = (EMPTY_TEXT.get(kind) if emptied else None) or REASON_TEXT.get(kind, kind)
    text = text.format(name)
    return f"{counted(nodes, 'node')} {agree(text, nodes)}"
