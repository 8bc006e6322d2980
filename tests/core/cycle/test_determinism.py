"""The same input gives the same plan, whatever the hash seed."""

import hashlib
import os
import subprocess
import sys

import msgspec

from penstock.core.model.events import Record
from penstock.core.model.plan import Plan
from penstock.testing.builders import queues
from penstock.testing.harness import cluster

TENTHS = 10


def history() -> tuple[list[Plan], list[Record]]:
    """Return every plan and the log of a busy little history with classes, queues, gangs and preemption."""
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
    return plans, w.records


def digest_of_plans() -> str:
    return hashlib.sha256(msgspec.json.encode(history())).hexdigest()


def test_the_history_that_is_compared_has_starts_gangs_preemptions_and_waits():
    plans, _ = history()
    starts = [s for p in plans for s in p.starts]
    assert len(starts) > 20
    assert max(len(s.places) for s in starts) == 3
    assert sum(len(p.preemptions) for p in plans) > 3
    assert {v.code for p in plans for v in p.verdicts.values()} >= {"no_fit", "making_room"}


def test_plans_do_not_depend_on_the_hash_seed():
    digests = set()
    for seed in ("0", "1", "4242"):
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        script = "from tests.core.cycle.test_determinism import digest_of_plans; print(digest_of_plans())"
        answer = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
        digests.add(answer.stdout.strip())
    assert digests == {digest_of_plans()}
