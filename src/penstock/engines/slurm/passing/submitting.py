"""Attempts become jobs of Slurm: folders are made, then one `sbatch` for each, or for elements of an array together."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Mapping, Sequence

from penstock.core.messages.orders import StartReplica
from penstock.core.model.ids import NodeName
from penstock.devices.installed import visibility
from penstock.engines.processes import account_files
from penstock.engines.processes.accounts import account_of, hand_over, private
from penstock.engines.processes.jobfolders import MARK_NAME, prepare_folder
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.spawn import replica_environment
from penstock.engines.slurm.nodes import SlurmNode
from penstock.engines.slurm.passing.options import submission
from penstock.engines.slurm.passing.script import script_of
from penstock.engines.slurm.passing.spool import Spool
from penstock.engines.slurm.server import JobTerms
from penstock.engines.slurm.writing import SlurmWriter
from penstock.privatefiles import PASSED

log = logging.getLogger(__name__)

Elements = Sequence[Sequence[StartReplica]]
"""The replicas of each attempt that goes into one job of Slurm."""


class Submitter:
    """Makes jobs of attempts.

    Args:
        data: holds the folders of jobs, on storage that the nodes share.
        cluster: the identity of the log.
    """

    def __init__(self, writer: SlurmWriter, spool: Spool, data: DataFolder, cluster: str) -> None:
        self._writer, self._spool, self._data, self._cluster = writer, spool, data, cluster
        self._preparing = asyncio.Lock()
        """Folders are made one job after the other: threads would only wait for the lock of the folder of all jobs."""

    async def submit(self, elements: Elements, terms: JobTerms, nodes: Mapping[NodeName, SlurmNode]) -> str:
        """Return the number of the job of Slurm.

        Raises: SlurmAway: it may be one or not; NotTaken, ValueError, KeyError: Slurm would not take it; OSError.
        """
        first = elements[0][0]
        given = submission(elements, terms, nodes, self._cluster)
        async with self._preparing:
            text, hosts = await asyncio.to_thread(self._prepared, elements, given.hosts)
        variables = {"SLURM_HOSTFILE": hosts} if hosts else {}
        if first.account:
            variables |= account_of(first.account).variables
        submitted = self._writer.submit(text, *given.options, variables=variables)
        number, _ = await asyncio.gather(submitted, asyncio.to_thread(self._sync, elements))
        return number

    def _sync(self, elements: Elements) -> None:
        """Bring the marks of folders to disk, while sbatch is under way: one after the other they would take longer."""
        for replicas in elements:
            with contextlib.suppress(OSError):
                descriptor = account_files.plain_file(self._data.job(replicas[0].key.job_id) / MARK_NAME)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)

    def _prepared(self, elements: Elements, hosts: Sequence[NodeName]) -> tuple[str, str]:
        """Make the folders; return the script, and the file that names the nodes of a gang's ranks."""
        first = elements[0][0]
        spool = self._spool.prepare(first.account)
        variables, folders = {}, {}
        for replicas in elements:
            folders[replicas[0].key.job_id] = self._folder(replicas)
            for one in replicas:
                variables[one.key.job_id, one.key.rank] = self._variables(one)
        path = ""
        if hosts:
            key = first.key
            path = str(spool / "hosts" / f"{key.job_id}.{key.attempt}")
            with account_files.folder(spool / "hosts") as own:
                account_files.remove(os.path.basename(path), own)
                text = "".join(f"{name}\n" for name in hosts).encode()
                account_files.write_new(os.path.basename(path), text, own)
        return script_of(elements, str(spool), folders, variables), path

    def _folder(self, replicas: Sequence[StartReplica]) -> str:
        """Make the folder of a job; return it."""
        data, first = self._data, replicas[0]
        folder = data.job(first.key.job_id)
        private(folder.parent, PASSED)
        prepare_folder(data, first, synced=False)
        private(folder, PASSED if first.account else 0o700)
        for inner in (data.checkpoints(first.key.job_id), data.work(first.key.job_id)):
            inner.mkdir(0o700, exist_ok=True)  # root's: the job's folder
        if first.account:
            account = account_of(first.account)
            for one in replicas:
                hand_over(data, one.key, account)
                output = account_files.kept_file(data.output(one.key), os.O_WRONLY, account.uid, account.gid)
                os.close(output)
        return str(folder)

    def _variables(self, order: StartReplica) -> dict[str, str]:
        """Return the variables of a replica: Slurm's own say which devices it has."""
        account = account_of(order.account) if order.account else None
        found = replica_environment(order, (), self._data, {}, account)
        return {name: value for name, value in found.items() if not (order.devices and name in visibility(()))}
