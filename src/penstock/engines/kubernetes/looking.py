"""What has to be looked at again as objects have changed that pods claim: nodes, pods, and workloads that wait."""

from collections.abc import Callable, Iterable, Mapping

from penstock.engines.kubernetes.avoiding import Avoiding
from penstock.engines.kubernetes.devices.kind import DeviceClaims
from penstock.engines.kubernetes.gangs.registry import Gangs
from penstock.engines.kubernetes.gangs.workloads import Workload
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.offers import Offers
from penstock.engines.kubernetes.sessions import Nodes
from penstock.engines.kubernetes.view import ClusterView
from penstock.engines.kubernetes.volumes.volumes import Volumes


class Looking:
    """Looks again. Everything runs on the engine's loop."""

    def __init__(
        self,
        view: ClusterView,
        volumes: Volumes,
        devices: DeviceClaims,
        standing: Nodes,
        gangs: Gangs,
        offers: Offers,
        avoiding: Avoiding,
    ) -> None:
        self._view, self._volumes, self._devices, self._standing = view, volumes, devices, standing
        self._gangs, self._offers, self._avoiding = gangs, offers, avoiding

    def turn(self, pods: Mapping[tuple[str, str], Pod], pod_changed: Callable[[Pod], None]) -> bool:
        """Look at what has changed since the turn before, as far as a turn has time for.

        Args:
            pods: the copy of the pods, by namespace and name; `pod_changed`: looks at one again.

        Returns: whether more is left.
        """

        def look_at(keys: Iterable[str]) -> None:
            for key in keys:
                namespace, _, name = key.partition("/")
                pod = pods.get((namespace, name))
                if pod is not None:
                    pod_changed(pod)

        self._look_at_volumes(pod_changed)
        self._look_at_devices(look_at)
        return self._volumes.due or self._devices.due

    def workload_changed(self, workload: Workload) -> None:
        if self._view.started_here(workload):
            self._volumes.workload_changed(workload)
        self._offers.workload_changed(workload)

    def workload_gone(self, workload: Workload) -> None:
        self._volumes.workload_gone(workload)
        self._offers.workload_gone(workload)

    def more_said(self, namespace: str) -> None:
        """Look again at pods of a namespace of which an object says more by now."""
        self._offers.more_said(namespace)
        self._devices.group_changed(namespace)

    def _look_at_volumes(self, pod_changed: Callable[[Pod], None]) -> None:
        again = self._volumes.turn()
        for node in again.nodes:
            self._standing.hello(node)
        if again.all_nodes:
            self._standing.hello_all()
        for pod in again.pods:
            pod_changed(pod)
        for gang_id in again.gangs:
            self._offers.claims_changed(gang_id)

    def _look_at_devices(self, look_at: Callable[[Iterable[str]], None]) -> None:
        again = self._devices.turn()
        look_at(again.pods)
        for gang in self._gangs if again.templates else ():
            if gang.namespace in again.templates:
                self._offers.claims_changed(gang.id)
        changed = self._devices.count()
        for node in changed:  # the server hears what nodes have before it hears of who asks for it
            self._standing.hello(node)
        self._avoiding.changed(changed)
