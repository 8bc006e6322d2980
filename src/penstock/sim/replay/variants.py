"""Variants to compare: a configuration with other policies, named in short words such as `fifo+easy+best_fit`."""

from typing import get_args

import msgspec
from msgspec.structs import replace

from penstock.core.model.cluster import (
    BackfillRule,
    BuiltinPolicy,
    ClusterConfig,
    PlacementPolicy,
    PreemptionRule,
    QueuePolicy,
    Settings,
)
from penstock.core.model.errors import InvalidInput, Problem, nearest
from penstock.core.order.extension import EXTENSION_PREFIX
from penstock.sim.replay.simulation import Knows

_QUEUE: tuple[str, ...] = get_args(BuiltinPolicy)
_BACKFILL: tuple[str, ...] = tuple(f"{rule}" for rule in get_args(BackfillRule))
_PLACEMENT: tuple[str, ...] = get_args(PlacementPolicy)
_PREEMPTION = {"preempt": "lower_priority", "reclaim": "reclaim", "no_preempt": "never"}
_KNOWS: tuple[str, ...] = get_args(Knows)
_ELASTIC = {"goodput": "goodput", "speedup": "speedup", "no_growth": "off"}
WORDS = (*_QUEUE, *_BACKFILL, *_PLACEMENT, *_PREEMPTION, *_KNOWS, *_ELASTIC, "rebalance", "defrag")
"""`none` switches backfill off: any job that fits may start, and the others get no reservation."""


class Variant(msgspec.Struct, frozen=True):
    """One thing to be tried."""

    name: str
    config: ClusterConfig
    knows: Knows = "declared"


def variant(words: str, base: ClusterConfig, *, knows: Knows = "declared") -> Variant:
    """Return `base` changed by the words, joined by `+`; the order of the words does not matter.

    Queue policies, backfill rules, placement policies, preemption rules and rules for elastic jobs replace those of
    every queue and pool;
    `declared` (limits and estimates alone), `learned` and `true` set the source of run times, which is the setting
    `predict_run_times` where none is named; NAME=VALUE is a number of the settings.
    Raises: InvalidInput for a word that is none of these.
    """
    config = base
    for word in words.split("+"):
        if word in _QUEUE or word.startswith(EXTENSION_PREFIX):
            config = _with_queues(config, policy=word)
        elif word in _BACKFILL:
            config = replace(config, pools=tuple(replace(pool, backfill=word) for pool in config.pools))
        elif word in _PLACEMENT:
            config = replace(config, pools=tuple(replace(pool, placement=word) for pool in config.pools))
        elif word in _PREEMPTION:
            config = _with_queues(config, preemption=_PREEMPTION[word])
        elif word in _KNOWS:
            knows = word  # type: ignore[assignment]
            if word != "true":
                config = replace(config, settings=replace(config.settings, predict_run_times=word == "learned"))
        elif word in _ELASTIC or word == "rebalance":
            changed = {"mode": _ELASTIC[word]} if word in _ELASTIC else {"rebalance": True}
            pools = (replace(pool, elastic=replace(pool.elastic, **changed)) for pool in config.pools)
            config = replace(config, pools=tuple(pools))
        elif word == "defrag":
            config = replace(config, settings=replace(config.settings, defrag=True))
        elif "=" in word:
            config = replace(config, settings=_with_number(config.settings, word))
        elif word != "as_is":
            hint = nearest(word, WORDS) or f"known: {', '.join(WORDS)}, NAME=NUMBER"
            problem = Problem("unknown_policy", "policy", f"there is no policy '{word}'", word, hint)
            raise InvalidInput(problem.message, problems=(problem,))
    return Variant(words, config, knows)


def _with_queues(
    config: ClusterConfig, *, policy: QueuePolicy | None = None, preemption: PreemptionRule | str | None = None
) -> ClusterConfig:
    fields = {"policy": policy, "preemption": preemption}
    given = {name: value for name, value in fields.items() if value is not None}
    queues = tuple(replace(queue, **given) for queue in config.queues)
    inner = replace(config, queues=queues)
    return inner if policy is None else replace(inner, root_policy=policy)


def _with_number(settings: Settings, word: str) -> Settings:
    name, _, text = word.partition("=")
    known = getattr(settings, name, None)
    if not isinstance(known, int):
        hint = nearest(name, Settings.__struct_fields__)
        problem = Problem("unknown_setting", "policy", f"there is no setting '{name}'", word, hint)
        raise InvalidInput(problem.message, problems=(problem,))
    try:
        value: int | bool = {"true": True, "false": False}[text] if isinstance(known, bool) else int(text)
    except (KeyError, ValueError):
        wanted = "true or false" if isinstance(known, bool) else "a whole number"
        problem = Problem("invalid_value", f"policy.{name}", f"{name} is '{text}', expected {wanted}", text)
        raise InvalidInput(problem.message, problems=(problem,)) from None
    return replace(settings, **{name: value})
