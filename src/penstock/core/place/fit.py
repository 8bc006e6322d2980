"""Whether replicas fit on one node, which devices they take there, and why they do not."""

from penstock.core.model.jobs import GangAsk
from penstock.core.model.resources import LINK_KINDS, DeviceAsk
from penstock.core.place.free import FreeNode

HOST_REASONS = {
    "cpu_milli": "cpu_short",
    "memory_bytes": "memory_short",
    "storage_bytes": "storage_short",
    "bandwidth_bps": "bandwidth_short",
}

REASON_TEXT: dict[str, str] = {
    "pool": "belong to another pool",
    "node_lost": "are lost",
    "node_joining": "are joining",
    "node_draining": "are being drained",
    "label": "do not have the labels wanted",
    "vendor": "have devices of another vendor",
    "model": "have no device of an accepted model",
    "device_memory": "have devices with too little memory",
    "capability": "have devices of too low compute capability",
    "device_failed": "have failed devices",
    "devices_too_few": "have too few devices, even when empty",
    "devices_short": "have too few devices free",
    "device_links": "have enough devices free, but not joined as required",
    "cpu_short": "have too little CPU free",
    "memory_short": "have too little memory free",
    "storage_short": "have too little storage free",
    "bandwidth_short": "have too little network bandwidth free",
    "gang_short": "could take some of the replicas, but not all replicas fit together",
}


def closed_reason(gang: GangAsk, node: FreeNode) -> str:
    """Return why `node` is out of the question for `gang` whatever is free there, or ''."""
    spec = node.spec
    if spec.pool != gang.pool:
        return "pool"
    if node.closed:
        return node.closed
    labels = spec.labels
    if any(label not in labels for label in gang.labels_wanted):
        return "label"
    if any(label in labels for label in gang.labels_shunned):
        return "label"
    return ""


def capacity(gang: GangAsk, node: FreeNode) -> int:
    """Return how many replicas of `gang` (0 to gang.replicas) fit on `node` now."""
    if closed_reason(gang, node):
        return 0
    ask = gang.each
    most = gang.replicas
    if gang.topology and gang.topology.scope == "spread" and gang.topology.required:
        most = 1
    by_host = ask.host.times_within(node.host)
    if by_host is not None:
        most = min(most, by_host)
    if ask.devices is None or most == 0:
        return most
    return min(most, _device_capacity(ask.devices, node))


def _device_capacity(ask: DeviceAsk, node: FreeNode) -> int:
    free = node.eligible(ask)
    if ask.link is None:
        return len(free) // ask.count
    chosen = set(free)
    return sum(len(chosen.intersection(group)) // ask.count for group in node.groups(ask.link))


def pick_devices(ask: DeviceAsk, node: FreeNode) -> tuple[int, ...]:
    """Return `ask.count` free devices of `node`, the best connected ones, ascending.

    The closest kind of link whose groups hold enough free devices wins; among its groups the one with the fewest
    free devices, so that bigger groups stay whole for bigger requests; equal ones fall to the lowest index.
    With several acceptable models the order of preference comes before closeness.

    Raises: ValueError if they do not fit: `capacity` should have been asked.
    """
    free = node.eligible(ask)
    if len(ask.models) > 1:
        by_model = {d.index: ask.models.index(d.model) for d in node.spec.devices if d.index in free}
        for best in range(len(ask.models)):
            preferred = [i for i in free if by_model[i] <= best]
            groups = node.groups(ask.link) if ask.link else (tuple(preferred),)
            if any(len(set(preferred).intersection(group)) >= ask.count for group in groups):
                free = preferred
                break
    reach = LINK_KINDS[: LINK_KINDS.index(ask.link) + 1] if ask.link else LINK_KINDS
    chosen = set(free)
    for kind in reach:
        fitting = [
            members for group in node.groups(kind) if len(members := sorted(chosen.intersection(group))) >= ask.count
        ]
        if fitting:
            return tuple(min(fitting, key=lambda m: (len(m), m))[: ask.count])
    raise ValueError(f"{ask.count} devices do not fit on {node.spec.name}")


def refusal(gang: GangAsk, node: FreeNode) -> str:
    """Return the reason code why not even one replica of `gang` fits on `node`, or '' when one does."""
    closed = closed_reason(gang, node)
    if closed:
        return closed
    ask = gang.each.devices
    if ask is not None:
        refused = [ask.accepts(d) for d in node.spec.devices]
        if refused.count(None) < ask.count:
            named = sorted(r for r in refused if r is not None)
            return named[0] if named else "devices_too_few"
        if _device_capacity(ask, node) == 0:
            return "devices_short" if len(node.eligible(ask)) < ask.count else "device_links"
    short = gang.each.host.shortage(node.host)
    return HOST_REASONS[short] if short else ""


def tightness(gang: GangAsk, node: FreeNode, replicas: int) -> tuple[int, int, str]:
    """Return a sort key, lowest for the tightest node: what would be left after `replicas` were placed.

    First come free devices that a request without devices would strand, then the sum over all resources of the
    free share left (in thousandths of the node's capacity), then the node's name.
    Source: best fit, Johnson et al. 1974, over several dimensions by normalised sum.
    """
    each, total, free = gang.each, node.spec.capacity, node.host
    left = 0
    for has, now, ask in (
        (total.cpu_milli, free.cpu_milli, each.host.cpu_milli),
        (total.memory_bytes, free.memory_bytes, each.host.memory_bytes),
        (total.storage_bytes, free.storage_bytes, each.host.storage_bytes),
        (total.bandwidth_bps, free.bandwidth_bps, each.host.bandwidth_bps),
    ):
        if has > 0:
            left += 1000 * (now - ask * replicas) // has
    stranded = 0
    if node.spec.devices:
        after = len(node.devices) - each.device_count * replicas
        left += 1000 * after // len(node.spec.devices)
        stranded = len(node.devices) if each.devices is None else 0
    return (stranded, left, node.spec.name)
