"""What pods use that is an object of its own, such as a volume or a device by a claim.

Each kind of claim says what it asks of nodes while a gang is planned, is looked at again at the start, and is made
ready just before its pod is bound.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.core.model.affinity import AffinityRule
from penstock.core.model.ids import NodeName
from penstock.core.model.resources import Models
from penstock.core.model.selectors import LabelTerms
from penstock.engines.kubernetes.amounts import Sums, sum_of
from penstock.engines.kubernetes.asks import all_of
from penstock.engines.kubernetes.gangs.gang import Refused
from penstock.engines.kubernetes.objects.nodes import Node
from penstock.engines.kubernetes.objects.pods import Pod


class Claims(Protocol):
    """One kind of claim. Everything is called on the engine's loop; only `prepare` and `release` may wait."""

    def refusal(self, pod: Pod) -> Refused | None:
        """Return why a pod can never be placed with what it claims, or not as things are; else None."""
        ...

    def terms(self, pod: Pod) -> LabelTerms:
        """Return the nodes on which the pod has what it claims; () for any."""
        ...

    def sums(self, pod: Pod) -> Sums:
        """Return what the pod takes of what `offered` gives, whether it waits or stands on a node."""
        ...

    def devices(self, pod: Pod, share: int) -> Models:
        """Return the devices that the pod gets by its claims, by kind, in thousandths: it is charged for them.

        Args:
            share: the number of pods among which a shared claim is divided.
        """
        ...

    def offered(self, node: Node) -> Sums:
        """Return what a node has for claims, by names that are no resources of nodes."""
        ...

    def refusal_of(self, node: NodeName, pod: Pod) -> str:
        """Return why the node does not have now what the pod claims, whatever was planned; '' if it does."""
        ...

    async def prepare(self, pod: Pod, node: NodeName, wanted: Callable[[], bool]) -> str:
        """Make everything ready for the pod to start on the node. Returns: '' once it is, else why it never will be.

        Args:
            wanted: whether the pod is still to start there.
        """
        ...

    async def release(self, pod: Pod, node: NodeName) -> None:
        """Give back what was made ready for a pod that does not start."""
        ...


class AllClaims:
    """All kinds of claims together.

    Args:
        together: gives the rules that keep pods with a claim in common on one node.
    """

    def __init__(
        self, kinds: Sequence[Claims] = (), together: Callable[[Pod], tuple[AffinityRule, ...]] = lambda _: ()
    ) -> None:
        self._kinds, self.together = tuple(kinds), together

    def refusal(self, pod: Pod) -> Refused | None:
        return next(filter(None, (kind.refusal(pod) for kind in self._kinds)), None)

    def terms(self, pod: Pod) -> LabelTerms:
        found: LabelTerms = ()
        for kind in self._kinds:
            found = all_of(found, kind.terms(pod))
        return found

    def sums(self, pod: Pod) -> Sums:
        return sum_of(kind.sums(pod) for kind in self._kinds)

    def devices(self, pod: Pod, share: int) -> Models:
        return tuple(sorted(sum_of(dict(kind.devices(pod, share)) for kind in self._kinds).items()))

    def offered(self, node: Node) -> Sums:
        return sum_of(kind.offered(node) for kind in self._kinds)

    def refusal_of(self, node: NodeName, pod: Pod) -> str:
        return next(filter(None, (kind.refusal_of(node, pod) for kind in self._kinds)), "")

    async def prepare(self, pod: Pod, node: NodeName, wanted: Callable[[], bool]) -> str:
        for number, kind in enumerate(self._kinds):
            problem = await kind.prepare(pod, node, wanted)
            if problem:
                for other in self._kinds[:number]:
                    await other.release(pod, node)
                return problem
        return ""

    async def release(self, pod: Pod, node: NodeName) -> None:
        for kind in self._kinds:
            await kind.release(pod, node)
