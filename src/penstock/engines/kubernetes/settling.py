"""Gangs towards the server: whole ones are submitted, those that lack pods are held until they are whole again."""

import asyncio
from collections.abc import Callable
from functools import partial

from penstock.core.model.gang import GangAsk
from penstock.core.model.ids import JobId
from penstock.core.model.resources import ReplicaAsk
from penstock.engines.kubernetes.amounts import BadAmount
from penstock.engines.kubernetes.asks import SCHEDULER
from penstock.engines.kubernetes.gangs.gang import Gang, Refused, Slot, fill, gang_ask, new_job, slots_of
from penstock.engines.kubernetes.gangs.registry import Gangs
from penstock.engines.kubernetes.gangs.workloads import Workload
from penstock.engines.kubernetes.names import POOL_LABEL, TEMPLATE_ANNOTATION
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.server import Server

SETTLE_S = 1.0
"""The server is asked again about a gang after this long, when it could not be settled."""
GANGS_MAX = 500
"""Gangs about which the server is asked in one turn of the loop."""
SIZE_TEXT = "expected at least one pod, and no more than 10,000"


class Settling:
    """Asks the server about gangs. Everything runs on the engine's loop.

    Args:
        ask_of: returns what a pod asks for. May raise BadAmount.
        refusal: returns why the pods of a workload can never be placed, or not as things are.
        say: tells people why a gang is not placed.
        submitted: hears of each job that a gang has become.
        suspend_first: stops a workload that runs without having been started here.
    """

    def __init__(
        self,
        server: Server,
        gangs: Gangs,
        ask_of: Callable[[Gang, Pod], ReplicaAsk],
        refusal: Callable[[Workload], Refused | None],
        say: Callable[[Gang, Refused], None],
        submitted: Callable[[JobId], None],
        suspend_first: Callable[[Gang], None],
    ) -> None:
        self._server, self._gangs, self._ask_of, self._refusal = server, gangs, ask_of, refusal
        self._say, self._submitted, self._suspend_first = say, submitted, suspend_first

    def turn(self, now_s: float) -> bool:
        """Ask the server about gangs that have changed. Returns: whether more are left."""
        for number, gang in enumerate(self._gangs.unsettled(now_s)):
            if number >= GANGS_MAX:
                return True
            gang.asked = True
            if gang.job_id is None:
                self._submit(gang)
            elif gang.workload is not None and gang.workload.over:
                self._server.cancel(gang.job_id, "its workload has ended")
                self._gangs.forget(gang)
            elif gang.placed:
                self._server.requeue(gang.job_id, partial(self._requeued, gang))
            elif gang.held and gang.deserted:
                self._server.cancel(gang.job_id, "its pods were deleted")
                self._gangs.forget(gang)
            elif gang.renewed:
                self._server.cancel(gang.job_id, "it has another queue or priority by now: a new job follows")
                self._gangs.reform(gang)
            elif gang.held and gang.complete:
                gang.hold_asked = False
                self._rank(gang)
            elif gang.complete and (gang.edited or gang.lacks_ranks):
                self._edit(gang)
            else:
                gang.hold_asked = False
                self._server.hold(gang.job_id, partial(self._held, gang), held=True)
        return False

    def _submit(self, gang: Gang) -> None:
        others = {one.pod.spec.scheduler_name for one in gang.workload.sets} if gang.workload is not None else set()
        if others - {SCHEDULER}:
            text = f"its pods have schedulerName {', '.join(sorted(others - {SCHEDULER}))}, expected {SCHEDULER}"
            gang.asked, gang.refused = False, True
            self._say(gang, Refused("Unsupported", text))
            return
        refused = self._refusal(gang.workload) if gang.workload is not None else None
        if refused is not None:
            gang.asked, gang.refused = False, True
            self._say(gang, refused)
            return
        try:
            job = new_job(gang, partial(self._ask_of, gang), tenant_known=self._server.knows_tenant(gang.namespace))
        except BadAmount as error:
            gang.asked, gang.refused = False, True
            self._say(gang, Refused("InvalidAmount", str(error)))
            return

        def reply(found: JobId | Refused) -> None:
            gang.asked = False
            if isinstance(found, Refused):
                gang.refused, gang.again_s = not found.again, _now_s() + SETTLE_S
                self._say(gang, found)
                self._gangs.forget_empty(gang)
            else:
                self._gangs.submitted(gang, found)
                self._submitted(found)

        if gang.workload is not None and not gang.workload.suspended:
            self._suspend_first(gang)
        self._server.submit(job, reply)

    def _requeued(self, gang: Gang, problem: str) -> None:
        gang.asked = False
        if problem == "over":
            self._gangs.reform(gang)
        else:
            if not problem:
                gang.held = gang.hold_asked = True
            gang.again_s = _now_s() + SETTLE_S  # it leaves

    def _held(self, gang: Gang, problem: str) -> None:
        gang.asked = False
        if problem in ("", "held_already"):
            gang.held = True
            self._gangs.mark(gang)  # its pods may all have been deleted
        elif problem == "over":
            self._gangs.reform(gang)
        else:
            gang.again_s = _now_s() + SETTLE_S  # it runs still

    def _rank(self, gang: Gang) -> None:
        """Give the pods of a gang that is whole again their ranks; it is edited where they ask for something else."""
        for slot in gang.slots:
            pod = gang.members.get(slot.pod)
            if pod is None or pod.leaving:
                slot.pod = ""
        ask_of = partial(self._ask_of, gang)
        try:
            list(fill(gang, gang.first(), ask_of))
            asked = [ask_of(gang.members[slot.pod]) for slot in gang.slots if slot.pod]
        except BadAmount as error:
            gang.asked, gang.refused = False, True
            self._say(gang, Refused("InvalidAmount", str(error)))
            return
        edited = gang.edited and gang.elastic is not None
        if gang.workload is None:
            edited = not all(slot.pod for slot in gang.slots) or asked != [slot.ask for slot in gang.slots]
        if edited:
            self._edit(gang)
        else:
            self._release(gang)

    def _edit(self, gang: Gang) -> None:
        assert gang.job_id is not None
        try:
            slots = slots_of(gang, partial(self._ask_of, gang))
        except BadAmount as error:
            gang.asked, gang.edited = False, False
            self._say(gang, Refused("InvalidAmount", str(error)))
            return
        self._server.edit(gang.job_id, _ask_of(gang, slots), partial(self._edited, gang, slots))

    def same_as_placed(self, gang: Gang, asked: GangAsk) -> bool:
        """Return whether the attempt of an ElasticJob is what would be placed and made now, by what its job asked."""
        elastic = gang.elastic
        made_of = {pod.metadata.annotations.get(TEMPLATE_ANNOTATION, "") for pod in gang.members.values()}
        if elastic is None or elastic.problem or not made_of <= {elastic.template_hash}:
            return False
        try:
            return _ask_of(gang, slots_of(gang, partial(self._ask_of, gang))) == asked
        except BadAmount:
            return False

    def _edited(self, gang: Gang, slots: list[Slot], problem: str) -> None:
        gang.asked = False
        if problem in ("", "same") and not gang.placed:
            gang.slots, gang.edited = slots, self._changed_since(gang, slots)
            if gang.held:
                gang.asked = True
                self._release(gang)
        elif problem == "over":
            self._gangs.reform(gang)
        else:
            gang.again_s = _now_s() + SETTLE_S

    def _changed_since(self, gang: Gang, slots: list[Slot]) -> bool:
        """Return whether a gang asks for something else by now than when the server was asked."""
        if not gang.complete:
            return False
        try:
            return [one.ask for one in slots_of(gang, partial(self._ask_of, gang))] != [one.ask for one in slots]
        except BadAmount:
            return True

    def _release(self, gang: Gang) -> None:
        assert gang.job_id is not None
        self._server.hold(gang.job_id, partial(self._released, gang), held=False)

    def _released(self, gang: Gang, problem: str) -> None:
        gang.asked = False
        if problem == "over":
            self._gangs.reform(gang)
            return
        if problem not in ("", "not_held"):
            gang.again_s = _now_s() + SETTLE_S  # it is busy
            return
        gang.held = False
        self._gangs.mark(gang)  # its pods may have changed meanwhile


def _ask_of(gang: Gang, slots: list[Slot]) -> GangAsk:
    lead = gang.workload.labels if gang.workload is not None else gang.first()[0].metadata.labels
    return gang_ask([slot.ask for slot in slots], lead.get(POOL_LABEL, ""), gang.elastic)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
