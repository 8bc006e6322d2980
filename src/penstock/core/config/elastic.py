"""The `elastic` section of a pool, and `batch` of a job: how sizes and batches of elastic jobs are chosen."""

from typing import get_args

from penstock.core.config.fields import Field, Section, Values, flag, integer, section, word
from penstock.core.config.reader import Reader
from penstock.core.model.batching import RESTARTS_MAX, BatchAsk, ElasticMode, ElasticRule
from penstock.core.model.jobs import GangAsk

MODES: tuple[str, ...] = get_args(ElasticMode)
MODE_TEXT = "by useful samples a second, by speed, or not at all"
SAMPLES_MAX = 2**40
ELASTIC = Section(
    ElasticRule,
    {
        "mode": word(f"how sizes are chosen: {MODE_TEXT}", MODES),
        "rebalance": flag("whether running jobs shrink, move and pause for others that gain more"),
        "restarts_per_hour": integer("how often in an hour one job may be restarted for that", 0, RESTARTS_MAX),
    },
)


def _is_a_range(reader: Reader, batch: BatchAsk) -> None:
    if batch.largest < batch.smallest:
        reader.wrong("max", batch.largest, f"at least min, {batch.smallest}")
    if batch.per_device_max < batch.per_device_min:
        reader.wrong("per_device_max", batch.per_device_max, f"at least per_device_min, {batch.per_device_min}")


_BATCH = Section(
    BatchAsk,
    {
        "min": integer("smallest, for which its learning rate was tuned", 1, SAMPLES_MAX, at="smallest"),
        "max": integer("largest, of all replicas and passes together", 1, SAMPLES_MAX, at="largest"),
        "per_device_max": integer("largest of one replica in one pass: what fits into memory", 1, SAMPLES_MAX),
        "per_device_min": integer("smallest of one replica in one pass", 1, SAMPLES_MAX),
    },
    _is_a_range,
)
BATCH: Field = section("batch sizes that it accepts, in samples; the scheduler chooses one with its size", _BATCH)


def build_batch(values: Values, ask: GangAsk, reader: Reader) -> BatchAsk | None:
    """Return the batch range of a job; what its shape cannot have is reported at `batch`."""
    batch: BatchAsk | None = values.get("batch")
    if batch is None:
        return None
    least = ask.replicas * batch.per_device_min
    if ask.others:
        hint = "leave out batch, or groups"
        reader.wrong("batch", f"{len(ask.others)} groups beside", "replicas that are all alike", hint=hint)
    elif batch.largest < least:
        expected = f"at least {least}: replicas ({ask.replicas}) x per_device_min ({batch.per_device_min})"
        reader.wrong("batch.max", batch.largest, expected)
    return batch
