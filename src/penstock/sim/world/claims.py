"""A simulated tenant whose programs claim that nodes fail, and the checks that protect other tenants."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from penstock.core.config.job import parse_request
from penstock.core.messages.reports import NodeCheck
from penstock.core.model import events as ev
from penstock.core.model.cluster import AGENT, CHECKED_BY, ClusterConfig
from penstock.core.model.ids import JobId, NodeName, TenantName
from penstock.sim.world.clients import Clients
from penstock.sim.world.ground import Ground
from penstock.sim.world.programs import Behaviour

WORLDS_PART = 0.15
"""Part of all worlds in which one tenant's programs claim that nodes fail."""
STRIKES_MAX = 2
JOBS = 16
CLAIM = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
FAILED_CHECKS_PART = 0.2


class Claims:
    """The claiming tenant and its jobs; `rng` has no other use, so a seed otherwise keeps meaning the same world."""

    def __init__(self, world: Ground, rng: random.Random, faults_until_ms: int) -> None:
        self._world, self._rng, self._faults_until_ms = world, rng, faults_until_ms
        self.tenant = TenantName(rng.choice(world.tenants))

    def declare(self, config: ClusterConfig) -> ClusterConfig:
        return replace(config, settings=replace(config.settings, node_strikes_max=STRIKES_MAX))

    def plan_requests(self, clients: Clients, over_ms: int) -> None:
        """Spread jobs that fail, and claim a fault of their node, over a time."""
        for number in range(JOBS):
            command = list(Behaviour(steps=self._rng.choice((1, 5)), exit_code=1).command())
            entry = {"name": f"claim-{number}", "command": command, "tenant": self.tenant, "queue": "b", "cpus": 1}
            parsed, problems = parse_request([entry])
            assert not problems, problems
            clients.asked[f"claim-{number}"] = parsed
            at_ms = self._rng.randint(0, over_ms)
            self._world.agenda.after(at_ms, lambda key=f"claim-{number}": clients.submit(key))  # type: ignore[misc]

    def note(self, job_id: JobId) -> str:
        """Return the last line that a failing program of the job printed."""
        return CLAIM if self._world.specs[job_id].tenant == self.tenant else ""

    def check(self) -> NodeCheck:
        """Return the result of a node's self-check: it fails now and then, without any program's fault."""
        if self._world.agenda.now_ms > self._faults_until_ms or self._rng.random() > FAILED_CHECKS_PART:
            return NodeCheck(True)
        self._world.probe("check_failed")
        return NodeCheck(False, "disk: what was read is not what was written")

    def violations(self, records: Iterable[ev.Record]) -> Iterator[str]:
        """Yield effects of the tenant's claims on others, and allocations to it on nodes that are shut to it."""
        own: Counter[NodeName] = Counter()
        closed: set[NodeName] = set()
        failed: set[NodeName] = set()
        shut: set[NodeName] = set()
        for record in records:
            event = record.event
            match event:
                case ev.NodeStruck():
                    own[event.node] += event.own or event.job_id is None
                case ev.NodeShut():
                    self._world.probe("node_shut_to_tenant")
                    shut.add(event.node)
                    if event.tenant != self.tenant:
                        yield f"{event.node} was shut to tenant {event.tenant}, which claimed nothing"
                case ev.NodeRemoved():
                    shut.discard(event.node)
                case ev.NodeChecked():
                    self._world.probe("claims_cleared" if event.passed else "claims_confirmed")
                    (failed.discard if event.passed else failed.add)(event.node)
                    shut -= {event.node} if event.passed else set()
                case ev.NodeDrainChanged() if event.by == AGENT:
                    pass  # for its full disk: what was claimed and counted before stays so
                case ev.NodeDrainChanged() if not event.draining:
                    for known in (closed, failed, shut):
                        known.discard(event.node)
                    own[event.node] = 0
                case ev.NodeDrainChanged():
                    enough = own[event.node] >= STRIKES_MAX or event.node in failed | closed
                    if event.by == CHECKED_BY and not enough:
                        yield f"{event.node} was closed for all tenants, and only {self.tenant} claimed that it fails"
                    closed.add(event.node)
                case ev.AttemptAllocated() if self._world.specs[event.job_id].tenant == self.tenant:
                    for name in sorted({place.node for place in event.places} & shut):
                        yield f"job {event.job_id} of {self.tenant} was given places on {name}, which is shut to it"
                case _:
                    pass


def has_claims(seed: int) -> bool:
    """Return whether a tenant's programs claim faults in the world of a seed."""
    return random.Random(f"{seed} claims of faults").random() < WORLDS_PART
