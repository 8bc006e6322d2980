"""Which gangs may be disrupted for others: none that a PodDisruptionBudget would keep half of.

The Eviction API refuses single pods. A gang is evicted whole, so it is chosen only where the budgets allow all of its
pods at once; the server is told which gangs that rules out, with numbers. What the API server does with pods of more
than one budget, and with those that do not run yet: https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/
"""

from collections.abc import Iterable, Mapping

from penstock.core.model.ids import JobId
from penstock.core.model.words import counted
from penstock.engines.kubernetes.gangs.gang import Gang, GangId
from penstock.engines.kubernetes.gangs.registry import Gangs
from penstock.engines.kubernetes.objects.groups import DisruptionBudget
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.server import Server

GANGS_MAX = 500
"""Gangs looked at in one turn of the loop; `PAIRS_MAX`: pairs of a pod and a budget after which a turn ends."""
PAIRS_MAX = 20_000
BUDGETS_MAX = 50
"""Budgets of a namespace that are looked at: with more of them its gangs are protected, whatever they say."""


class Budgets:
    """Follows budgets and the gangs that they select. Everything runs on the engine's loop."""

    def __init__(self, server: Server, gangs: Gangs) -> None:
        self._server, self._gangs = server, gangs
        self._of_namespace: dict[str, dict[str, DisruptionBudget]] = {}
        self._selected: dict[tuple[str, str], set[GangId]] = {}
        """Gangs of which each budget selected pods when they were last looked at."""
        self._changed: dict[GangId, None] = {}
        self._said: dict[JobId, str] = {}

    def adopt(self, job_id: JobId, why: str) -> None:
        """Note what the log says of a job."""
        if why:
            self._said[job_id] = why

    def changed(self, budget: DisruptionBudget) -> None:
        meta = budget.metadata
        budgets = self._of_namespace.setdefault(meta.namespace, {})
        before, budgets[meta.name] = budgets.get(meta.name), budget
        if before is None or before.spec != budget.spec:
            self._mark(gang.id for gang in self._gangs if gang.namespace == meta.namespace)
        elif before.status != budget.status:
            self._mark(self._selected.get((meta.namespace, meta.name), ()))

    def removed(self, budget: DisruptionBudget) -> None:
        meta = budget.metadata
        budgets = self._of_namespace.get(meta.namespace, {})
        budgets.pop(meta.name, None)
        if not budgets:
            self._of_namespace.pop(meta.namespace, None)
        self._mark(self._selected.pop((meta.namespace, meta.name), ()))

    def pod_changed(self, gang: Gang) -> None:
        """Note that a pod of a gang has come, gone or changed."""
        if gang.namespace in self._of_namespace or gang.job_id in self._said:
            self._changed[gang.id] = None

    def begin(self) -> None:
        """Look at every gang that the log says is protected: its budget may be gone."""
        self._mark(gang.id for gang in self._gangs if gang.job_id in self._said)

    def _mark(self, gangs: Iterable[GangId]) -> None:
        self._changed.update(dict.fromkeys(gangs))

    def turn(self) -> None:
        """Tell the server what has changed."""
        pairs = 0
        for gang_id in tuple(self._changed)[:GANGS_MAX]:
            if pairs > PAIRS_MAX:
                return
            del self._changed[gang_id]
            gang = self._gangs.get(gang_id)
            if gang is not None and gang.job_id is not None:
                pairs += len(gang.members) * len(self._of_namespace.get(gang.namespace, ()))
                self._tell(gang.job_id, self._why(gang) if gang.placed else "")
        if len(self._said) > 2 * GANGS_MAX:
            self._said = {job_id: why for job_id, why in self._said.items() if self._gangs.of_job(job_id) is not None}

    def _tell(self, job_id: JobId, why: str) -> None:
        if self._said.get(job_id, "") == why:
            return
        if why:
            self._said[job_id] = why
        else:
            del self._said[job_id]
        self._server.protect(job_id, why)

    def why(self, gang: Gang) -> str:
        """Return why a gang must not be evicted, as of the last turn, or ''."""
        return self._said.get(gang.job_id, "") if gang.job_id is not None else ""

    def _why(self, gang: Gang) -> str:
        budgets = self._of_namespace.get(gang.namespace, {})
        if len(budgets) > BUDGETS_MAX:
            return (
                f"namespace {gang.namespace} has {len(budgets)} PodDisruptionBudgets, and {BUDGETS_MAX} are looked at"
            )
        running = [pod for pod in gang.members.values() if pod.spec.node_name and pod.disruptable]
        taken = _selected(budgets, running)
        for name in budgets:
            known = self._selected.setdefault((gang.namespace, name), set())
            (known.add if name in taken else known.discard)(gang.id)
        several = sorted(set().union(*taken.values())) if len(taken) > 1 else []
        twice = next((pod for pod in several if sum(pod in pods for pods in taken.values()) > 1), None)
        if twice is not None:
            return f"pod {twice} is selected by more than one PodDisruptionBudget: the API server evicts no such pod"
        for name, pods in sorted(taken.items()):
            allowed = budgets[name].status.disruptions_allowed
            if len(pods) > allowed:
                text = f"PodDisruptionBudget {gang.namespace}/{name} allows {counted(allowed, 'disruption')} now"
                return f"{text}, and it has {counted(len(pods), 'pod')} of that"
        return ""


def _selected(budgets: Mapping[str, DisruptionBudget], pods: Iterable[Pod]) -> dict[str, set[str]]:
    """Return the names of the pods that each budget selects, without budgets that select none."""
    found: dict[str, set[str]] = {}
    for pod in pods:
        for name, budget in budgets.items():
            selector = budget.spec.selector
            if selector is None or not selector.selects(pod.metadata.labels):
                continue
            if not (pod.unready and budget.spares_unready):
                found.setdefault(name, set()).add(pod.metadata.name)
    return found
