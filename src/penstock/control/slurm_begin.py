"""How a server beside Slurm begins: what happened before goes into its log, then the engine follows."""

import asyncio
import logging
from typing import NamedTuple

from penstock.control.slurm_history import SlurmHistory, Store
from penstock.core.model.cluster import ClusterConfig
from penstock.engines.slurm.commands import SlurmAway, SlurmCommands, require_programs
from penstock.engines.slurm.jobs import SlurmJob
from penstock.engines.slurm.lives import lives_of
from penstock.engines.slurm.nodes import SlurmNode
from penstock.engines.slurm.reading import NOTHING_READ, Begun, QueueRead, SlurmConfig, SlurmReader
from penstock.ports import Clock

log = logging.getLogger(__name__)

DAY_S = 86_400
OVERLAP_S = 600
"""Accounts are read from this long before the last record: what ended just before a server did is not in its log."""


class _Read(NamedTuple):
    config: SlurmConfig
    nodes: list[SlurmNode]
    accounts: list[SlurmJob]
    queue: QueueRead


def begin(store: Store, clock: Clock, config: ClusterConfig | None, *, name: str, history_days: int) -> Begun:
    """Write what happened in the cluster before now into the log.

    Args:
        config: put in force where the log is empty; None: what it has.
        history_days: how far back jobs are read into an empty log.
    Raises: InvalidInput without Slurm's commands; SlurmAway where Slurm does not answer and the log is empty;
        as `Controller.open`.
    """
    require_programs()
    history = SlurmHistory(store, clock, config, name=name)
    now_ms = clock.unix_ms()
    since_s = max(history.last_ms // 1000 - OVERLAP_S, now_ms // 1000 - history_days * DAY_S)
    try:
        read = asyncio.run(_read(since_s))
    except SlurmAway as error:
        if not history.last_ms:
            raise
        log.warning("Slurm does not answer: the server begins with what its log has", extra={"problem": error.message})
        return NOTHING_READ
    jobs = history.write(lives_of(read.accounts, read.queue.jobs.values()), read.nodes, now_ms)
    log.info("history of the cluster is in the log", extra={"jobs": jobs, "cluster": read.config.cluster})
    return Begun(read.config, read.queue)


async def _read(since_s: int) -> _Read:
    config = await SlurmReader(SlurmCommands()).config()
    reader = SlurmReader(SlurmCommands(), gpus_tracked=config.gpus_tracked)
    nodes = await reader.nodes()
    accounts: list[SlurmJob] = []
    if config.accounts:
        try:
            accounts = await reader.history(since_s)
        except SlurmAway as error:
            log.warning("sacct does not answer: the history begins with squeue", extra={"problem": error.message})
    return _Read(config, nodes, accounts, await reader.queue())
