"""Where a claim without a volume could get one: of those that are there, or made by its class.

Volumes that are there and that nobody makes more of, such as disks of nodes, are amounts of their nodes for the
planner: two pods of one gang do not count on the same one.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

from penstock.core.model.selectors import LabelTerms, accepted
from penstock.engines.kubernetes.amounts import Sums, sum_of
from penstock.engines.kubernetes.asks import NOWHERE, all_of
from penstock.engines.kubernetes.objects.claims import ClaimSpec
from penstock.engines.kubernetes.objects.nodes import Node
from penstock.engines.kubernetes.objects.volumes import StorageClass, Volume, VolumeClaim
from penstock.engines.kubernetes.volumes.matching import (
    NO_PROVISIONER,
    WAITS,
    allowed_by,
    any_of,
    driver_of_class,
    fits_kept,
    is_free,
    is_kept_for,
    labels_of,
    may_get,
    reach_of,
    reaches,
    room_in,
    roomy_of,
    size_of,
    smallest,
)
from penstock.engines.kubernetes.volumes.view import ClaimKey, VolumeView

STOCK = "volumes:"
"""Begins the names of amounts of volumes that are there, by class and least size."""
SIZES_MAX = 64
"""Different sizes that are counted; claims of further ones count as claims of any size."""
MEMO_MAX = 10_000
EXACT_BITS = 5
"""Volumes that several nodes reach are counted so exactly: up to 31 each counts, then one of 2, 4, 8 and so on."""


class Stock:
    """Judges claims without volumes. Everything runs on the engine's loop."""

    def __init__(self, view: VolumeView) -> None:
        self._view = view
        self._assumed: dict[str, ClaimKey] = {}
        self._chosen: dict[ClaimKey, str] = {}
        """Volumes that were chosen for a claim, until that shows in the volume itself; the second by claim."""
        self._taken: set[ClaimKey] = set()
        """Claims that get, or have got, a volume that was counted as an amount of the node."""
        self._releases = 0
        """How often a volume that was chosen was to be had again."""
        self._takes = 0
        """How often that has changed."""
        self._shared: dict[str, _Shared] = {}
        """By class."""
        self._told: dict[str, Mapping[LabelTerms, Sums]] = {}
        self._sizes: dict[tuple[str, int], None] = {}
        self._memo: dict[tuple[str, ...], LabelTerms] = {}

    def forget(self) -> None:
        """Volumes, classes or room have changed."""
        self._memo.clear()

    def takes(self, key: ClaimKey) -> bool:
        """Return whether a claim takes a volume that was counted."""
        return key in self._taken

    def take(self, key: ClaimKey, *, takes: bool = True) -> None:
        """Note that a claim takes a volume that was counted, or does so no more."""
        if takes != self.takes(key):
            self._takes += 1
            (self._taken.add if takes else self._taken.discard)(key)

    def late_class(self, spec: ClaimSpec) -> StorageClass | None:
        """Return the class of a claim that gets its volume once its pod's node is chosen; None for other claims."""
        found = self._view.storage_class(spec.storage_class_name or "")
        return found if found is not None and found.volume_binding_mode == WAITS and not spec.volume_name else None

    def _free(self, volumes: Iterable[Volume], spec: ClaimSpec) -> Iterator[Volume]:
        """Yield those of these volumes that a claim could get."""
        return (one for one in volumes if one.name not in self._assumed and may_get(one, spec))

    def kept_for(self, claim: VolumeClaim) -> Volume | None:
        """Return the volume that is kept for a claim, or was chosen for it."""
        chosen = self._view.volume(self._chosen.get(claim.key, ""))
        return chosen or next((one for one in self._view.naming(claim.key) if is_kept_for(one, claim)), None)

    def assume(self, key: ClaimKey, volume: Volume) -> None:
        """Choose a volume for a claim: nobody else gets it, until `release`."""
        self._assumed[volume.name], self._chosen[key] = key, volume.name

    def release(self, key: ClaimKey) -> Volume | None:
        """Forget which volume was chosen for a claim: that shows in the volume by now, or it was not to be.

        Returns: the volume, where others may get it again.
        """
        name = self._chosen.pop(key, "")
        self._assumed.pop(name, None)
        volume = self._view.volume(name)
        if volume is None or not is_free(volume):
            return None
        self.forget()
        self._releases += 1
        return volume

    def terms(self, spec: ClaimSpec, claim: VolumeClaim | None = None) -> LabelTerms:
        """Return the nodes on which a claim without a volume can get one."""
        found = self.late_class(spec)
        if found is None:
            return ()
        kept = self.kept_for(claim) if claim is not None else None
        if kept is not None:
            return reach_of(kept) if fits_kept(kept, spec) else NOWHERE
        size, name = size_of(spec), found.metadata.name
        key = (name, str(size), spec.volume_mode, *sorted(spec.access_modes), str(spec.selector))
        known = self._memo.get(key)
        if known is None:
            if len(self._memo) >= MEMO_MAX:
                self._memo.clear()
            there = [self._view.reach_of(one) for one in self._free(self._view.free(name), spec)]
            known = self._memo[key] = any_of([*there, *self._made_for(spec, found, size)])
        return known

    def _made_for(self, spec: ClaimSpec, found: StorageClass, size: int) -> Iterator[LabelTerms]:
        """Yield the nodes for which a class makes a volume of this size; nothing where it makes none for the claim."""
        if found.provisioner == NO_PROVISIONER or spec.selector is not None:
            return
        terms = allowed_by(found)
        if self._view.tells_room(driver_of_class(found)):
            room = roomy_of(self._view.capacities_of(found.metadata.name), size)
            if room == NOWHERE:
                return
            terms = all_of(terms, room)
        yield terms

    # Choosing.

    def choose(self, node: Node, claims: list[VolumeClaim]) -> dict[ClaimKey, Volume | None] | str:
        """Return the volume that each claim gets on a node; None: its class makes one. A text: why one gets none.

        The smallest claim chooses first, and takes the smallest volume.
        """
        found: dict[ClaimKey, Volume | None] = {}
        taken: set[str] = set()
        for claim in sorted(claims, key=lambda one: (size_of(one.spec), one.key)):
            kept = self.kept_for(claim)
            if kept is not None:
                if not fits_kept(kept, claim.spec) or not reaches(node, kept):
                    return f"volume {kept.name}, which is kept for claim {claim.metadata.name}, is of no use there"
                found[claim.key] = kept
                continue
            reached = self._view.reached(claim.spec.storage_class_name or "", node)
            free = (one for one in self._free(reached, claim.spec) if one.name not in taken)
            volume = found[claim.key] = smallest(free)
            if volume is not None:
                taken.add(volume.name)
            elif not self._is_made(claim.spec, node):
                return f"no volume is left there for claim {claim.metadata.name}"
        return found

    def _is_made(self, spec: ClaimSpec, node: Node) -> bool:
        late = self.late_class(spec)
        if late is None:
            return False
        return any(accepted(terms, labels_of(node)) for terms in self._made_for(spec, late, size_of(spec)))

    # Amounts.

    def state_of(self, name: str) -> tuple[int, ...]:
        """Return something that is another once more volumes of a class may be left."""
        return self._view.changes_of(name), self._releases

    def rooms_left(self, name: str) -> list[int]:
        """Return how many bytes each volume of a class has that nobody gets; ascending."""
        return sorted(room_in(one) for one in self._view.free(name) if one.name not in self._assumed)

    def amount_of(self, claim: VolumeClaim | None, spec: ClaimSpec) -> str:
        """Return the name of the amount that a claim takes one of; '' for claims that are not counted."""
        found = self._view.storage_class(spec.storage_class_name or "")
        if found is None or found.provisioner != NO_PROVISIONER or found.volume_binding_mode != WAITS:
            return ""
        if claim is not None and not self.takes(claim.key) and (spec.volume_name or self.kept_for(claim)):
            return ""  # what it gets, or has, is no volume that others could choose
        size = size_of(spec)
        if (found.metadata.name, size) not in self._sizes:
            if len(self._sizes) >= SIZES_MAX:
                size = 0
            self._sizes[found.metadata.name, size] = None
        return _amount(found.metadata.name, size)

    @property
    def sizes(self) -> int:
        """How many amounts are counted: nodes have to be described anew when there are more."""
        return len(self._sizes)

    def offered(self, node: Node) -> Sums:
        """Return how many volumes a node has for claims that are counted."""
        labels = labels_of(node)
        found: Sums = {}
        for name in {name: None for name, _ in self._sizes}:
            near = self._count(name, self._view.near(name, node))
            found |= {key: count for key, count in sum_of((near, self._shared_of(name).at(labels))).items() if count}
        return found

    def _count(self, name: str, volumes: Iterable[Volume]) -> Sums:
        """Return how many volumes of a class these are for the claims of each size."""
        rooms = sorted(room_in(one) for one in volumes if self._counts(one))
        sizes = [size for of, size in self._sizes if of == name]
        return {_amount(name, size): len(rooms) - bisect_left(rooms, size) for size in sizes} if rooms else {}

    def _shared_of(self, name: str) -> "_Shared":
        known, state = self._shared.get(name), (self._view.changes_of(name), self._takes, self.sizes)
        if known is None or known.state != state:
            shared = ((reach, self._count(name, some.values())) for reach, some in self._view.shared(name).items())
            counts = {reach: {key: _rough(count) for key, count in some.items()} for reach, some in shared}
            known = self._shared[name] = _Shared(state, counts)
        return known

    def shared_changed(self, name: str) -> bool:
        """Return whether nodes have something else by now of what several of them reach, since this was asked last."""
        counts = self._shared_of(name).counts
        changed, self._told[name] = counts != self._told.get(name, {}), counts
        return changed

    def _counts(self, volume: Volume) -> bool:
        """Return whether a volume is free, as one that was chosen still is, or is that of a counted claim."""
        ref = volume.spec.claim_ref
        if ref is not None:
            return self.takes((ref.namespace, ref.name))
        return is_free(volume)

    def counts_class(self, name: str) -> bool:
        """Return whether the volumes of a class are amounts of nodes."""
        return any(one == name for one, _ in self._sizes)


class _Shared:
    """How many volumes of a class there are that several nodes reach, by these nodes."""

    def __init__(self, state: tuple[int, ...], counts: Mapping[LabelTerms, Sums]) -> None:
        self.state, self.counts = state, counts
        self._keys = sorted({rule.key for reach in counts for term in reach for rule in term})
        self._known: dict[tuple[str | None, ...], Sums] = {}
        """What nodes have, by their labels that count: few, where each names a zone."""

    def at(self, labels: Mapping[str, str]) -> Sums:
        """Return what a node with these labels has."""
        told = tuple(map(labels.get, self._keys))
        found = self._known.get(told)
        if found is None:
            if len(self._known) >= MEMO_MAX:
                self._known.clear()
            found = sum_of(some for reach, some in self.counts.items() if accepted(reach, labels))
            self._known[told] = found
        return found


def _rough(count: int) -> int:
    """Return a count, rounded up, so that a change of it seldom means describing all nodes anew.

    Never down: on a cluster of one node the last volumes would be counted for nobody. That there are fewer shows at
    the start.
    """
    shift = max(0, count.bit_length() - EXACT_BITS)
    return -(-count >> shift) << shift


def _amount(name: str, size: int) -> str:
    """Return the name of an amount; other sizes have other names."""
    whole = size > 0 and size % 2**30 == 0
    return f"{STOCK}{name}:{f'{size >> 30}Gi' if whole else size}"
