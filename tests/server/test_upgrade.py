"""A data folder of a version that had no certificates, with an agent of that version that still runs a job."""

import os

from penstock.engines.local.launch import agent_pid
from tests.server.harness import Jobs, Server, cluster_file, until


def test_an_old_folder_gets_certificates_and_its_jobs_run_on(tmp_path):
    with Server(tmp_path / "data", cluster_file(1)) as server:
        jobs = Jobs(server.client)
        job = jobs.submit("echo $$; sleep 60")
        jobs.state(job, "running")
        until(lambda: jobs.output(job), "it says its number")
        pid, agent = int(jobs.output(job)), agent_pid(server.data, "n1")
        server.hang_up()
        server.process.kill()
        server.process.wait()
        for path in (*server.data.certificates.iterdir(), server.data.node_certificate("n1")):
            path.unlink()
        server.start()
        (seen,) = until(lambda: [n for n in server.client.nodes() if n.connected], "the agent is back")
        os.kill(pid, 0)
        assert (seen.name, server.client.job(job).state, server.client.job(job).attempt) == ("n1", "running", 1)
        assert agent_pid(server.data, "n1") != agent  # it runs the program that is installed now
        Jobs(server.client).client.cancel(job)
