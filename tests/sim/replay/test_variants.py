"""Policies by short words."""

import pytest

from penstock.core.model.cluster import Pool, Queue
from penstock.core.model.errors import InvalidInput
from penstock.sim.replay.variants import variant
from penstock.testing.builders import config

BASE = config(queues=(Queue("a"), Queue("b", policy="fair_share")), pools=(Pool("p"), Pool("q")))


def test_words_replace_what_every_queue_and_pool_has():
    found = variant("fifo+strict+best_fit+no_preempt", BASE)
    assert {(q.policy, q.preemption) for q in found.config.queues} == {("fifo", "never")}
    assert {(p.backfill, p.placement) for p in found.config.pools} == {("strict", "best_fit")}
    assert (found.config.root_policy, found.knows) == ("fifo", "declared")


def test_the_order_of_the_words_does_not_matter():
    one, other = variant("learned+easy+priority+defrag", BASE), variant("defrag+priority+learned+easy", BASE)
    assert (one.config, one.knows) == (other.config, other.knows)
    assert (one.config.settings.defrag, one.knows) == (True, "learned")


def test_what_is_not_named_stays():
    found = variant("conservative", BASE)
    assert [q.policy for q in found.config.queues] == ["shortest_predicted", "fair_share"]
    assert variant("as_is", BASE).config == BASE


def test_a_number_of_the_settings():
    assert variant("starvation_after_ms=5", BASE).config.settings.starvation_after_ms == 5
    assert variant("predict_run_times=true", BASE).config.settings.predict_run_times is True


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        ("fifo+eazy", "there is no policy 'eazy'", "did you mean 'easy'?"),
        ("starvation_after=5", "there is no setting 'starvation_after'", "did you mean 'starvation_after_ms'?"),
        ("starvation_after_ms=1h", "starvation_after_ms is '1h', expected a whole number", ""),
        ("defrag=2", "defrag is '2', expected true or false", ""),
        ("", "there is no policy ''", "known: "),
    ],
)
def test_other_words_are_refused_by_name(words, said, hint):
    with pytest.raises(InvalidInput) as refused:
        variant(words, BASE)
    (problem,) = refused.value.problems
    assert problem.message == said
    assert problem.hint.startswith(hint)
