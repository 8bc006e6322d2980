"""Jobs passed on to a Slurm cluster: the engine's way to the control loop."""

import asyncio
import logging
from collections.abc import Callable, Collection
from pathlib import Path

from penstock.control import messages as msg
from penstock.control.slurm import SLURM, Service, SlurmJobs
from penstock.core.messages.orders import Order, StartReplica
from penstock.core.model.ids import JobId, NodeName
from penstock.engines.processes.paths import DataFolder
from penstock.engines.slurm.commands import SlurmAway, SlurmCommands
from penstock.engines.slurm.passing.engine import SlurmPassing
from penstock.engines.slurm.reading import SlurmConfig, SlurmReader
from penstock.engines.slurm.server import JobTerms
from penstock.engines.slurm.writing import SlurmWriter

log = logging.getLogger(__name__)

AGAIN_S = 5.0


async def pass_on(
    shared: Path,
    service: Service,
    prepare: Callable[[Order], Order],
    started: Callable[[SlurmPassing], None],
    refresh_s: float,
) -> None:
    """Run the engine on this loop until cancelled.

    Args:
        shared: folder that this machine and all nodes see under the same path.
        prepare: returns an order as its node needs it.
        started: gets the engine, which takes orders from then on.
        refresh_s: time between two questions for all jobs (s).
    """
    config = await _config()
    reader = SlurmReader(SlurmCommands(), gpus_tracked=config.gpus_tracked, tagged=True)
    jobs = PassingJobs(service, prepare)
    engine = SlurmPassing(jobs, reader, SlurmWriter(), DataFolder(shared), config, refresh_s=refresh_s)
    started(engine)
    await engine.run()


async def _config() -> SlurmConfig:
    while True:
        try:
            return await SlurmReader(SlurmCommands()).config()
        except SlurmAway as error:
            log.warning("Slurm does not answer: it is asked again", extra={"problem": error.message})
            await asyncio.sleep(AGAIN_S)


class PassingJobs(SlurmJobs):
    """The server as the engine sees it. Its answers come on the loop that it is made on."""

    def __init__(self, service: Service, prepare: Callable[[Order], Order]) -> None:
        super().__init__(service)
        self._prepare = prepare

    def cluster(self) -> str:
        return self._service.controller.state.identity.cluster

    def prepared(self, order: StartReplica) -> StartReplica:
        found = self._prepare(order)
        assert isinstance(found, StartReplica)
        return found

    def terms(self, job_id: JobId) -> JobTerms | None:
        job = self._service.controller.state.jobs.get(job_id)
        return JobTerms(dict(job.spec.labels), job.spec.time_limit_ms, job.account) if job is not None else None

    def held_devices(self, node: NodeName) -> Collection[int]:
        return tuple(self._service.controller.state.indexes.load(node).devices)

    def requeue(self, job_id: JobId, on_reply: Callable[[str], None]) -> None:
        self._change(msg.ChangeJobs("requeue", (job_id,), SLURM, administrator=True), on_reply)
