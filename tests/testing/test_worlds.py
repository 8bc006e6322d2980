"""What a seed means, it means always; a third-party policy decides in a world as in a server."""

from penstock.core.messages.requests import Refusal, Submitted
from penstock.core.model.cluster import Settings
from penstock.core.model.jobs import Job
from penstock.testing.builders import config, node, queues
from penstock.testing.harness import World, cluster, cycles, running
from penstock.testing.worlds import cluster_of, crowded, job_stream


class LastFirst:
    """The newest job goes first."""

    name = "last"

    def order_key(self, job: Job, now_ms: int, settings: Settings) -> tuple[int, ...]:
        return (-job.id,)


def test_a_seed_means_the_same_world_and_the_same_jobs_each_time():
    assert crowded(7).records == crowded(7).records
    assert cluster_of(7).state.config == cluster_of(7).state.config
    assert list(job_stream(7, 20)) == list(job_stream(7, 20))
    assert list(job_stream(7, 20)) != list(job_stream(8, 20))


def test_a_stream_of_jobs_is_answered_and_planned_by_a_world_of_any_seed():
    for seed in range(10):
        w = cluster_of(seed)
        answers = [w.request(spec) for spec in job_stream(seed, 12)]
        assert {type(answer) for answer in answers} <= {Submitted, Refusal}
        cycles(w, 3)
        assert len(w.state.jobs) + len(w.ended) == sum(isinstance(answer, Submitted) for answer in answers)


def test_a_third_party_policy_orders_the_jobs_of_a_world():
    w = cluster(1, 1, policies=[LastFirst()], queues=queues("q", policy="ext:last"))
    first, last = w.submit(queue="q"), w.submit(queue="q")
    w.cycle()
    assert running(w) == {last}
    assert w.phase(first) == "waiting"


def test_a_world_takes_nodes_settings_and_sections_by_name():
    w = World(node("x", 2, pool="gold"), node("y", 0), starvation_after_ms=5, queues=queues("a", "b"))
    assert {name: len(n.spec.devices) for name, n in w.state.nodes.items()} == {"x": 2, "y": 0}
    assert w.state.config == config(starvation_after_ms=5, queues=queues("a", "b"))
