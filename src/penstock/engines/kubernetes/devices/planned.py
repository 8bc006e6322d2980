"""What the core is told of devices: how many pods of each kind a node has devices for. No I/O.

The core counts by names, and takes off what pods that it knows of take. So a node has what is free of each name now,
and on top of that what those pods take: then as much is free for the core as there really is.
"""

from collections.abc import Iterable, Iterator

from penstock.engines.kubernetes.amounts import Sums
from penstock.engines.kubernetes.devices.allocator import Ask, Cluster, allocate, may_have
from penstock.engines.kubernetes.devices.claimed import Claimed, Signature
from penstock.engines.kubernetes.devices.pools import Placed
from penstock.engines.kubernetes.devices.requests import Impossible, matching, wanted
from penstock.engines.kubernetes.objects.devices import ClaimSpec, DeviceClaim, DeviceClass, DeviceRequest, ExactRequest
from penstock.engines.kubernetes.objects.pods import Pod

COPIES_MAX = 64
"""So many pods with equal claims are told of a node at most."""
TRIES_MAX = 500
"""Of a search that only counts."""
SIGNATURES_MAX, OF_NAMESPACE_MAX = 200, 50
"""Different kinds of claims that are counted at once; and those that pods of one namespace alone have."""
MADE = "#"
"""In the name of what stands for pods that a template will make: no pod's name has it."""
SEARCH_WORK = 20
"""A search is as much work as so many kinds that are only counted."""
STEPS_A_WORK = 100
"""Steps of expressions that are as much work as a kind that is only counted."""
STEPS_A_PIECE = 20_000
"""Steps that are done in one piece, or somewhat more: some 15 ms."""
ANY_NUMBER = 100_000
"""Of pods that use a claim together."""


class Planned:
    """Counts what nodes have."""

    def __init__(self, claimed: Claimed) -> None:
        self._claimed = claimed
        self.work = 0
        """Done so far, in kinds of claims that were counted on a node."""
        self.signatures: dict[str, Signature] = {}
        """Those that some pod has, by name."""
        self.shared: dict[str, str] = {}
        """Claims that several pods may use, by the names that the core counts them by."""
        self._users: dict[str, dict[str, None]] = {}
        """The pods that each name is there for; `_names`: the names of a pod."""
        self._names: dict[str, dict[str, None]] = {}

    def note(self, pod: Pod) -> tuple[Sums, bool]:
        """Return what a pod takes, and whether one of these names is new."""
        found: Sums = {}
        new = False
        signature = self._claimed.signature(pod)
        if signature is not None:
            found[signature.name] = signature.number
            new = signature.name not in self.signatures
            self.signatures[signature.name] = signature
        for entry in self._claimed.known(pod):
            if not entry.own:
                name = f"of ResourceClaim {entry.claim}"
                found[name] = 1
                new = new or name not in self.shared
                self.shared[name] = entry.claim
        templates = f"{pod.metadata.namespace}/"
        user = templates if MADE in pod.metadata.name else pod.key
        for name in found:
            self._users.setdefault(name, {})[user] = None
            self._names.setdefault(user, {})[name] = None
        if user == templates:
            self._forget_oldest(templates, found)
        return found, new

    def _forget_oldest(self, templates: str, noted: Sums) -> None:
        """Keep what pods of a namespace's templates take: the kinds that were asked about last, so many."""
        names = self._names.get(templates, {})
        for name in noted:
            names[name] = names.pop(name, None)
        for name in list(names)[: max(0, len(names) - OF_NAMESPACE_MAX)]:
            del names[name]
            self._leave(name, templates)

    def room_for(self, pod: Pod) -> bool:
        """Return whether the kinds of claims of a pod may be counted, too: so many in all, and of one namespace."""
        signature = self._claimed.signature(pod)
        names = {signature.name} if signature is not None else set()
        names |= {f"of ResourceClaim {one.claim}" for one in self._claimed.known(pod) if not one.own}
        if names <= self._users.keys():
            return True
        begins = f"{pod.metadata.namespace}/"
        theirs = sum(all(key.startswith(begins) for key in users) for users in self._users.values())
        return len(self._users) < SIGNATURES_MAX and theirs < OF_NAMESPACE_MAX

    def drop(self, pod_key: str) -> bool:
        """Forget a pod. Returns: whether a kind of claims is forgotten with it."""
        left = [self._leave(name, pod_key) for name in self._names.pop(pod_key, {})]
        return any(left)

    def _leave(self, name: str, user: str) -> bool:
        users = self._users[name]
        users.pop(user, None)
        if not users:
            del self._users[name]
            self.signatures.pop(name, None)
            self.shared.pop(name, None)
        return not users

    def free(self, node: str) -> Sums:
        """Return how much of each name is free on a node."""
        found: Sums = {}
        for _ in self.counting(node, found):
            pass
        return found

    def counting(self, node: str, found: Sums) -> Iterator[None]:
        """Count into `found` how much of each name is free on a node; yields after each piece, which `work` counts."""
        cluster = self._claimed.cluster
        devices = cluster.reach(node).devices
        if not devices:
            return
        for signature in tuple(self.signatures.values()):
            yield from self._evaluate(signature.specs, cluster, devices)
            count = _plain if signature.plain else _copies
            number, searches = count(signature, cluster, node)
            self.work += 1 + SEARCH_WORK * searches
            if number:
                found[signature.name] = number
            yield
        for name, key in tuple(self.shared.items()):
            claim = self._claimed.claims.get(key)
            if claim is not None:
                yield from self._evaluate((claim.spec,), cluster, devices)
            self.work += 1 + SEARCH_WORK
            if self._may_use(key, cluster, node):
                found[name] = ANY_NUMBER
            yield

    def _evaluate(self, specs: Iterable[ClaimSpec], cluster: Cluster, devices: Iterable[Placed]) -> Iterator[None]:
        """Evaluate expressions on devices that did not see them yet; yields after so much work each."""
        done = 0
        try:
            asked = [one for spec in specs for options in wanted(spec, cluster.classes) for one in options]
            for placed in devices:
                before = placed.pool.steps
                for one in asked:
                    matching(one, (placed,))
                done += placed.pool.steps - before
                if done >= STEPS_A_PIECE:
                    self.work, done = self.work + done // STEPS_A_WORK, done % STEPS_A_WORK
                    yield
        except Impossible:
            pass  # who counts with it finds that again
        self.work += done // STEPS_A_WORK

    def _may_use(self, key: str, cluster: Cluster, node: str) -> bool:
        claim, allocation = self._claimed.claims.get(key), self._claimed.allocation(key)
        if claim is None:
            return False
        if allocation is not None and (claim.status.reserved_for or key in self._claimed.assumed):
            return self._claimed.usable(allocation, node)
        if allocation is not None and self._claimed.usable(allocation, node):
            return True
        return isinstance(allocate([Ask(key, claim.spec, node)], cluster, tries_max=TRIES_MAX), dict)


def _plain(signature: Signature, cluster: Cluster, node: str) -> tuple[int, int]:
    """Return how many devices are free for a plain request: of those that are parts, as many as go together."""
    (spec,) = signature.specs
    try:
        ((one,),) = wanted(spec, cluster.classes)
        devices = matching(one, (placed for placed in cluster.reach(node).devices if not placed.pool.problem))
    except Impossible:
        return 0, 0
    free = [placed for placed in devices if may_have(one, placed, cluster.use)]
    if any(placed.counters or placed.spec.allow_multiple_allocations for placed in free):
        return _copies(signature, cluster, node)
    return len(free), 0


def free_devices(device_class: DeviceClass, cluster: Cluster, node: str) -> int | None:
    """Return how many devices of a class are free on a node; None where it has none at all."""
    request = DeviceRequest("r", ExactRequest(device_class_name=device_class.metadata.name))
    spec = ClaimSpec(DeviceClaim((request,)))
    try:
        ((one,),) = wanted(spec, cluster.classes)
        if not matching(one, cluster.reach(node).devices):
            return None
    except Impossible:
        return None
    return _plain(Signature("", (spec,), plain=True), cluster, node)[0]


def _copies(signature: Signature, cluster: Cluster, node: str) -> tuple[int, int]:
    """Return how many pods with these claims the node has devices for, at most `COPIES_MAX`; and how many searches."""
    searches = 0

    def fit(number: int) -> bool:
        nonlocal searches
        searches += 1
        asks = [Ask(f"{i}.{j}", spec, node) for i in range(number) for j, spec in enumerate(signature.specs)]
        return isinstance(allocate(asks, cluster, tries_max=TRIES_MAX), dict)

    most = _most(signature, cluster, node)
    if not most or not fit(1):
        return 0, searches
    low, high = 1, min(2, most)
    while low < high and fit(high):
        low, high = high, min(2 * high, most)
    while low + 1 < high:
        middle = (low + high) // 2
        if fit(middle):
            low = middle
        else:
            high = middle
    return low, searches


def _most(signature: Signature, cluster: Cluster, node: str) -> int:
    """Return a bound on the number of such pods: what is free of what their requests match, without a search."""
    most = COPIES_MAX
    devices = [placed for placed in cluster.reach(node).devices if not placed.pool.problem]
    try:
        for spec in signature.specs:
            for options in wanted(spec, cluster.classes):
                bounds = []
                for one in options:
                    free = [placed for placed in matching(one, devices) if may_have(one, placed, cluster.use)]
                    several = one.ask.admin_access or any(placed.spec.allow_multiple_allocations for placed in free)
                    enough = len(free) >= (1 if one.all else one.ask.count)
                    each = COPIES_MAX if several else len(free) if one.all else len(free) // max(1, one.ask.count)
                    bounds.append(each if enough else 0)
                most = min(most, sum(bounds))
    except Impossible:
        return 0
    return most
