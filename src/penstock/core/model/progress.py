"""Reports of running programs, and the part of them that is kept with the job."""

import msgspec

from penstock.core.model.batching import BatchSeen, StepNoted
from penstock.core.model.ids import AttemptNumber, Rank

SAVE_SIGNALS = ("SIGUSR1", "SIGUSR2", "SIGINT", "SIGHUP")
"""Of which a program may say that it saves and carries on."""
PACED_STEPS, PACED_MS = 10, 60_000
"""Steps, and time, over which the mean time of a step counts."""
SIZES_MAX = 16
"""Sizes of an elastic job, by device model, whose numbers are kept: the last noted."""
STEPS_MAX = 32
"""Placements and batches of a job whose times are kept: the last noted."""


class Gauges(msgspec.Struct, frozen=True, omit_defaults=True):
    """Metrics reported by a program; 0 where it reports none."""

    step_ms: int = 0
    """How long a step usually takes."""
    report_gap_ms: int = 0
    """How long usually passes between two reports of steps."""
    total_steps: int = 0
    samples_per_s_milli: int = 0
    data_wait_milli: int = 0
    """Share of the time that it waits for data, thousandths."""
    communication_milli: int = 0
    memory_bytes: int = 0
    """Device memory in use."""
    data_queue: int = 0
    """Prepared inputs that wait for a device."""
    loss_not_finite: bool = False
    """The loss has been NaN or infinite for several reports in a row."""
    batch: BatchSeen | None = None
    """What it measured with its batch; None: it does not say."""


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step that a program had reached. `at_ms` is unix time less the attempt's earlier suspensions."""

    step: int = 0
    at_ms: int = 0


class SizeNoted(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a job did at one size when that was last noted."""

    replicas: int
    noted_ms: int
    samples_per_s_milli: int = 0
    data_wait_milli: int = 0
    communication_milli: int = 0
    step_ms_least: int = 0
    """The shortest step that was ever noted at this size; 0 where none was."""
    model: str = ""
    """Model of all its devices there: sizes of different models are kept apart. Empty: several, or none."""


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the program last reported. `checkpoint_ms` is when the newest checkpoint was taken."""

    step: int = 0
    checkpoint_step: int = 0
    checkpoint_ms: int = 0
    checkpoint_attempt: AttemptNumber = AttemptNumber(0)
    checkpoint_idle_ms: int = 0
    """For how long that attempt had been suspended by then."""
    resumed_attempt: AttemptNumber = AttemptNumber(0)
    """The attempt that last reported its resume: it counts once, however often a report is repeated."""
    gauges: Gauges = Gauges()
    noted_attempt: AttemptNumber = AttemptNumber(0)
    """The attempt that the gauges are of."""
    first: Mark = Mark()
    """Where that attempt was when its gauges were first noted."""
    noted: Mark = Mark()
    """Where it was when they were last noted."""
    sizes: tuple[SizeNoted, ...] = ()
    """At most `SIZES_MAX`, the last noted at the end."""
    steps: tuple[StepNoted, ...] = ()
    """At most `STEPS_MAX`, the last noted at the end."""
    noise: int = 0
    """Gradient noise scale as last noted (`BatchSeen.noise`); 0: not known."""
    restart_ms: int = 0
    """What a stop that lets it save, and its start after it, cost on average lately; 0: not measured."""
    stop_ms: int = 0
    """How long its last stop of that kind took, until its next attempt has been measured, too; 0: none is open."""
    hang: str = ""
    """What keeps it from its next step; empty when it makes steps."""
    hang_ranks: tuple[Rank, ...] = ()
    """The culprits."""
    told_ms: int = 0
    """When a note last said more than the previous one; like `Mark.at_ms`."""
    idle_since_ms: int = 0
    """Since when the attempt that was noted has been idle, like `Mark.at_ms`; 0: it is not."""
    idle_noted: bool = False
    """The log says so (`IdleNoted`), and it has been idle since."""
    save_signal: str = ""
    """The signal that makes it save and carry on, as its program said."""
    save_attempt: AttemptNumber = AttemptNumber(0)
    """The attempt that said so."""
    storage: str | None = None
    """Where what it saved last lies (`NodeSpec.storage`); None: it has saved nothing that is known."""

    @property
    def saved_on(self) -> str | None:
        """The storage that its next attempt has to reach, to continue; None: any. Former versions knew one alone."""
        return "" if self.storage is None and self.checkpoint_ms else self.storage

    @property
    def step_us(self) -> int:
        """How long a step takes, in microseconds; 0 where that is not known."""
        steps, passed_ms = self.noted.step - self.first.step, self.noted.at_ms - self.first.at_ms
        if steps >= PACED_STEPS and passed_ms >= PACED_MS:
            return passed_ms * 1000 // steps
        return self.gauges.step_ms * 1000

    @property
    def rest_ms(self) -> int:
        """How long the program runs from its newest checkpoint on, by the steps left; 0 where that is not known."""
        each_us, total = self.step_us, self.gauges.total_steps
        return max(1, (total - self.checkpoint_step) * each_us // 1000) if each_us and total else 0


class Failure(msgspec.Struct, frozen=True):
    """How the last attempt failed, and how many in a row failed the same way."""

    step: int
    how: str
    times: int = 1
