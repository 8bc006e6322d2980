"""The same input gives the same plan, whatever the hash seed."""

import hashlib
import os
import subprocess
import sys

import msgspec

from tests.core.builders import cluster, queues

TENTHS = 10


def digest_of_plans() -> str:
    """Return the digest of every plan of a busy little history with classes, queues, gangs and preemption."""
    w = cluster(3, 4, cpus=8, queues=queues("a", "b", "c"), allow_waiting_for_nodes=True, labels=(("disk", "ssd"),))
    plans = []
    for step in range(40):
        w.now += 1_000
        w.submit(
            step % 4,
            1 + step % 3,
            queue="abc"[step % 3],
            priority=100 * (1 + step * 7 % TENTHS),
            topology=(None, "node", "spread")[step % 3],
            labels_wanted=(("disk", "ssd"),)[: step % 2],
        )
        plans.append(w.cycle())
        for job in [j for j in list(w.state.jobs.values()) if j.attempt]:
            if job.state == "starting":
                w.start(job.id)
            elif job.state == "stopping":
                w.leave(job.id)
            elif job.id % 5 == step % 5:
                for rank in range(job.spec.ask.replicas):
                    w.exit_replica(job.id, rank)
    return hashlib.sha256(msgspec.json.encode([plans, w.records])).hexdigest()


def test_the_history_of_the_digest_is_worth_comparing():
    assert len(digest_of_plans()) == 64


def test_plans_do_not_depend_on_the_hash_seed():
    digests = set()
    for seed in ("0", "1", "4242"):
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        script = "from tests.core.test_determinism import digest_of_plans; print(digest_of_plans())"
        answer = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
        digests.add(answer.stdout.strip())
    assert digests == {digest_of_plans()}
