"""The shared input of every part of a cycle, and the cluster and queues as the cycle changes them."""

from typing import NamedTuple

from penstock.core.model.cluster import Settings
from penstock.core.order.queues import QueueTree
from penstock.core.place.holds import Holds
from penstock.core.place.index import ClusterIndex
from penstock.core.state.snapshot import Snapshot


class CycleContext(NamedTuple):
    """One cycle: its input, and the three things in which its decisions add up."""

    snapshot: Snapshot
    now_ms: int
    cluster: ClusterIndex
    """Free capacity, less what the cycle has allocated."""
    tree: QueueTree
    """Use of the queues, with what the cycle has allocated."""
    holds: Holds
    """Capacity that is kept for jobs that wait."""

    @property
    def settings(self) -> Settings:
        return self.snapshot.config.settings
