"""What a client sees of a job at the very moment at which it ends."""

from penstock.client import Client
from tests.crash.cluster import Cluster

JOBS = 40


def test_a_job_is_never_unknown_while_its_end_is_being_committed(cluster: Cluster) -> None:
    def watch(client: Client) -> list[str]:
        """Return the last state of each of some jobs, each looked at without a pause until it has ended."""
        states = []
        for _ in range(JOBS):
            (job,) = client.submit({"command": ["true"]}).jobs
            while (state := client.job(job.id).state) not in ("succeeded", "failed"):
                pass  # `job` raises when there is said to be no such job
            states.append(state)
        return states

    assert cluster.ask(watch) == ["succeeded"] * JOBS
