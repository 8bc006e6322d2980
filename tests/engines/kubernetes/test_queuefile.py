"""`queues.yaml`: what it declares is what Queue objects declare, and all that is wrong with it is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import cluster as c
from penstock.engines.kubernetes.objects.common import Metadata
from penstock.engines.kubernetes.objects.penstock import Queue, QueueSpec
from penstock.engines.kubernetes.operator.declaring import FairShare, declared
from penstock.engines.kubernetes.operator.queuefile import CHARACTERS_MAX, QUEUES_MAX, read_queues

SAMPLE = """
queues:
- name: research
  weight: 3
  maxCapacity: {nvidia.com/gpu: 16, cpu: 2.5, memory: 1Ti}
  guaranteedCapacity: {nvidia.com/gpu: "8"}
  preemptionPolicy: Never
- name: interactive
  parent: research
  lendingLimit: {}
fairShare:
  halfLife: 7d
"""


def test_a_file_declares_what_objects_declare() -> None:
    file, problems = read_queues(SAMPLE)
    assert problems == ()
    spec = QueueSpec(
        weight=3,
        guaranteed_capacity={"nvidia.com/gpu": 8},
        max_capacity={"nvidia.com/gpu": 16, "cpu": "2500m", "memory": "1024Gi"},
        preemption_policy="Never",
    )
    below = Queue(Metadata("interactive"), QueueSpec(parent="research", lending_limit={}))
    wanted = declared(c.ClusterConfig(), [Queue(Metadata("research"), spec), below], [])
    assert declared(c.ClusterConfig(), file.queues, []) == wanted
    assert wanted.problems == {}
    assert file.fair_share == FairShare(enabled=True, half_life_ms=7 * 86_400_000)


@pytest.mark.parametrize(
    ("share", "before", "policy", "half_life_ms"),
    [
        ("true", "priority", "fair_share", 5),
        ("false", "fair_share", "priority", 5),
        ("false", "capacity", "capacity", 5),
        ("{halfLife: 1s}", "capacity", "fair_share", 1000),
        ("{enabled: false, halfLife: 0}", "fifo", "fifo", 0),
    ],
)
def test_fair_share_is_the_order_of_the_queues_at_the_top(share, before, policy, half_life_ms) -> None:
    config = c.ClusterConfig(root_policy=before, settings=c.Settings(fair_share_half_life_ms=5))
    file, problems = read_queues(f"queues: [{{name: default}}]\nfairShare: {share}")
    assert problems == ()
    found = declared(config, file.queues, [], fair_share=file.fair_share).config
    assert (found.root_policy, found.settings.fair_share_half_life_ms) == (policy, half_life_ms)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "queues.yaml is None, expected a mapping with queues, fairShare"),
        ("- a", "queues.yaml is ['a'], expected a mapping with queues, fairShare"),
        ("queues: [", "queues.yaml is no YAML: line 2, column 1"),
        ("queues: []", "queues is [], expected a list of at least one queue"),
        ("queues: 3", "queues is 3, expected a list of at most 1000 mappings"),
        ("queues: [a]", "queues[0] is 'a', expected a mapping of fields"),
        ("queue: [{name: a}]", "queue is not a field (did you mean 'queues'?)"),
        ("queues: [{nam: a}]", "queues[0].nam is not a field (did you mean 'name'?)"),
        ("queues: [{weight: 1}]", "queues[0].name is None, expected 1 to 63 letters"),
        ("queues: [{name: a}, {name: a}]", "queues[1].name is 'a', expected another name than that of queues[0]"),
        ("queues: [{name: a, name: b}]", "line 1: the key 'name' stands there twice"),
        ("queues: [{name: a, weight: 0}]", "queues[0].weight is 0, expected a whole number from 1 to 1000000"),
        (
            "queues: [{name: a, preemptionPolicy: never}]",
            "preemptionPolicy is 'never', expected one of PreemptLowerPriority, Reclaim, Never (did you mean 'Never'?)",
        ),
        ("queues: [{name: a, maxCapacity: 8}]", "queues[0].maxCapacity is 8, expected a mapping such as"),
        (
            "queues: [{name: a, maxCapacity: {nvidia.com/gpus: 8}}]",
            "queues[0].maxCapacity.nvidia.com/gpus: expected one of cpu,",
        ),
        ("queues: [{name: a, maxCapacity: {nvidia.com/gpus: 8}}]", "did you mean 'nvidia.com/gpu'?"),
        ("queues: [{name: a, guaranteedCapacity: {memory: 5Gb}}]", "queues[0].guaranteedCapacity.memory is '5Gb', exp"),
        (
            "queues: [{name: a, guaranteedCapacity: {cpu: [1]}}]",
            "queues[0].guaranteedCapacity.cpu is [1], expected a q",
        ),
        (
            "queues: [{name: a, guaranteedCapacity: {cpu: '" + "0" * 30 + "." + "0" * 30 + "e+001'}}]",
            "expected a quantity such as 8 or 64Gi",
        ),
        ("queues: [{name: a}]\nfairShare: 3", "fairShare is 3, expected a mapping with enabled, halfLife"),
        (
            "queues: [{name: a}]\nfairShare: {halfLive: 3}",
            "fairShare.halfLive is not a field (did you mean 'halfLife'?",
        ),
        (f"queues: [{{name: a, maxCapacity: {{cpu: 0x{'f' * 5_000}}}}}]", "a number has 5,002 characters"),
        ("queues: &a [{name: a}]\nfairShare: *a", "it repeats a part of itself (*alias)"),
    ],
)
def test_what_is_wrong_is_named_with_what_was_expected(text, said) -> None:
    file, problems = read_queues(text)
    assert said in "\n".join(problems)
    assert file.queues == ()


def test_all_that_is_wrong_is_named_at_once() -> None:
    _, problems = read_queues("queues: [{name: a, weight: no}, {name: b, wait: 1}]\nfairShare: 1")
    assert [one.partition(" is")[0] for one in problems] == ["queues[0].weight", "queues[1].wait", "fairShare"]


def test_a_file_has_bounds() -> None:
    _, problems = read_queues("#" * (CHARACTERS_MAX + 1))
    assert problems == ("queues.yaml has 262,145 characters, expected 262,144 at most",)
    _, problems = read_queues("queues: [" + "{name: a}," * (QUEUES_MAX + 1) + "]")
    assert "queues is 'a list of 1001', expected a list of at most 1000 mappings" in problems
    many = ", ".join(f"r{n}: 1" for n in range(65))
    _, problems = read_queues(f"queues: [{{name: a, maxCapacity: {{{many}}}}}]")
    assert "of 64 resources at most" in problems[0]
    _, problems = read_queues("queues: [" + "{nam: a}," * QUEUES_MAX + "]")
    assert "only the first" in problems[-1]


@given(st.text(max_size=60) | st.text(alphabet="queuesnamwightfrSh:{}[], \n-0123", max_size=80))
def test_no_text_of_anybody_is_more_than_a_problem(text) -> None:
    file, problems = read_queues(text)
    assert bool(problems) != bool(file.queues)
