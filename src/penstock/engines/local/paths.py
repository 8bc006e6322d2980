"""Where things lie in the data folder. Jobs' folders are shared by all virtual nodes of the machine."""

from pathlib import Path

from penstock.core.lifecycle.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, Rank


class DataFolder:
    """Paths below one data folder; nothing is created by asking."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def server_lock(self) -> Path:
        """Held (flock) by the server for as long as it lives."""
        return self.root / "server.lock"

    @property
    def server_info(self) -> Path:
        """Addresses of the present server; replaced whole."""
        return self.root / "server.json"

    @property
    def agent_token(self) -> Path:
        return self.root / "agent.token"

    @property
    def user_token(self) -> Path:
        return self.root / "token"

    def node(self, name: str) -> Path:
        return self.root / "nodes" / name

    def job(self, job_id: JobId) -> Path:
        return self.root / "jobs" / str(job_id)

    def checkpoints(self, job_id: JobId) -> Path:
        return self.job(job_id) / "checkpoints"

    def output(self, key: ReplicaKey) -> Path:
        """Standard output and error of one replica of one attempt, in the order written."""
        return self.job(key.job_id) / f"attempt-{key.attempt}.rank-{key.rank}.log"

    def report(self, key: ReplicaKey) -> Path:
        return self.job(key.job_id) / f"attempt-{key.attempt}.rank-{key.rank}.report"

    def never_ran(self, key: ReplicaKey) -> Path:
        """Left by the gate when the agent died before it let the program run."""
        return self.job(key.job_id) / f"attempt-{key.attempt}.rank-{key.rank}.never-ran"

    def outputs(self, job_id: JobId) -> list[tuple[AttemptNumber, Rank, Path]]:
        """Return the output files of a job, by attempt and rank."""
        found = []
        for path in self.job(job_id).glob("attempt-*.rank-*.log"):
            attempt, rank = path.name.removesuffix(".log").split(".")
            number = AttemptNumber(int(attempt.removeprefix("attempt-")))
            found.append((number, Rank(int(rank.removeprefix("rank-"))), path))
        return sorted(found)
