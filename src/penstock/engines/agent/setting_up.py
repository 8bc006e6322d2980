"""Steps of a job that run on a node before its programs: once for each account, kept by all that they depend on.

Where the job starts in a snapshot, the steps and then the programs work in a copy of it, read-only once the steps have
ended. Elsewhere the steps work where the programs start. `PENSTOCK_SETUP_DIR` names a folder that stays.
"""

import hashlib
from collections.abc import Sequence, Set
from pathlib import Path

import msgspec

from penstock.core.messages.orders import StartReplica
from penstock.engines.agent.environments import KEPT_GIB, KEPT_S
from penstock.engines.agent.kept import KeptTrees, size_of, unwritten
from penstock.engines.agent.preparation import Contribution, NotPrepared, Preparation, Preparer
from penstock.engines.agent.programs import text_of
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.spawn import NEVER_RAN_CODE

SHOWN_MAX = 100
"""Characters of a step in the output and in reasons."""
FOLDER = "PENSTOCK_SETUP_DIR"
_COPY = 'cp -R --reflink=auto --preserve=mode,timestamps,links "$1/." "$2" && chmod -R u+w "$2"'
_CLOSE = 'chmod -R a-w "$1"'


class SettingUp(Preparer):
    """Runs setup steps for the replicas of one node."""

    def __init__(self, data: DataFolder, node: str) -> None:
        base = data.environments(node) / "setups"
        self._trees = KeptTrees(base, data.node(node) / "setups.json", in_place=True)
        self._snapshots = data.unpacked(node)
        self._kept_gib = KEPT_GIB

    def key(self, order: StartReplica) -> str:
        """Return the hash of the steps and of what they can depend on: the folder, the environment and its variables.

        The names of folders and environments that were made are new when these are made anew.
        """
        return hashlib.sha256(msgspec.json.encode([order.setup, order.workdir, sorted(order.env)])).hexdigest()

    def prepare(self, job: Preparation) -> Contribution:
        """Run the steps, unless what they made is there."""
        self._kept_gib = job.order.environments_kept_gib or KEPT_GIB
        copied = Path(job.order.workdir).is_relative_to(self._snapshots)

        def fill(folder: Path) -> int:
            self._run(job, folder, copied=copied)
            return size_of(folder, job.account)

        path, there = self._trees.get(self.key(job.order), job.account, job.users, fill)
        if there:
            job.say("its setup was done here before")
        return Contribution(((FOLDER, str(path)),), unwritten(job.account), workdir=str(path) if copied else "")

    def used(self, made: Contribution, users: Sequence[str]) -> None:
        """Keep what the steps made for these replicas."""
        self._trees.mark(Path(dict(made.env)[FOLDER]), users)

    def left(self, living: Set[str]) -> None:
        """Remove results that nothing has used for long, and those beyond their room."""
        for _ in self._trees.clean(living, kept_s=KEPT_S, kept_bytes=self._kept_gib * 2**30):
            pass

    def _run(self, job: Preparation, folder: Path, *, copied: bool) -> None:
        """Run the steps; their folder is empty. Raises: NotPrepared; Cancelled; OSError."""
        given = job.order.workdir
        if copied and not job.run(["/bin/sh", "-c", _COPY, "penstock", given, str(folder)]).ok:
            raise NotPrepared("its folder cannot be copied")
        where = given if given and not copied else str(folder)
        environment = {**job.environment(), FOLDER: str(folder)}
        for number, step in enumerate(job.order.setup, 1):
            shown = " ".join(step.split())
            shown = shown if len(shown) <= SHOWN_MAX else f"{shown[:SHOWN_MAX]}..."
            which = f"setup step {number} of {len(job.order.setup)}"
            job.say(f"{which}: {shown}")
            done = job.run(["/bin/sh", "-e", "-c", step], env=environment, workdir=where)
            if not done.ok:
                number_of = done.ended.code if done.ended.code is not None else 128 + (done.ended.signal or 0)
                raise NotPrepared(f"{which} {text_of(done.ended)}: {shown}", number_of or NEVER_RAN_CODE)
        if not job.run(["/bin/sh", "-c", _CLOSE, "penstock", str(folder)]).ok:
            raise NotPrepared("what the steps made cannot be made read-only", NEVER_RAN_CODE)
