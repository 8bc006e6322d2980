"""The search for edits: cheap checks rule out, a plan proves, and of numbers the largest that works is found."""

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from penstock.core.explain.scene import Scene
from penstock.core.explain.trials import Trials
from penstock.core.model.explanation import Edit, EditValue
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import GangAsk, GroupAsk, JobSpec
from penstock.core.model.resources import DeviceAsk
from penstock.core.order.ranks import request_class

Edits = Iterator[Edit]


class Search:
    """One search for edits of one job."""

    def __init__(self, scene: Scene, trials: Trials, awaited: frozenset[JobId] = frozenset()) -> None:
        self.scene, self.trials, self.awaited = scene, trials, awaited
        self.spec, self.gang = scene.spec, scene.gang

    def hopeful(self, spec: JobSpec) -> bool:
        """Return whether room and quota allow a request at all: else no plan starts it."""
        return self.scene.may_start(request_class(replace(self.scene.job, spec=spec), self.scene.config))

    def starts(self, spec: JobSpec) -> bool:
        """Return whether a plan starts the job with this request."""
        return self.hopeful(spec) and self.trials.with_spec(spec).started

    def largest(self, values: Sequence[int], make: Callable[[int], JobSpec]) -> int | None:
        """Return the largest of `values` (ascending) with which a plan starts the job, or None.

        Smaller values fit where larger ones do; so a bisection with cheap checks finds the largest hopeful value, and
        plans bisect from there on down.
        """
        high = _last(values, lambda value: self.hopeful(make(value)))
        if high < 0:
            return None
        if self.trials.with_spec(make(values[high])).started:
            return values[high]
        proven = _last(values[:high], lambda value: self.trials.with_spec(make(value)).started)
        return values[proven] if proven >= 0 and not self.trials.spent else None

    def with_gang(self, **changes: object) -> JobSpec:
        return replace(self.spec, ask=replace(self.gang, **changes))

    def with_group(self, number: int, **changes: object) -> JobSpec:
        """Return the request with another group changed: 0 is the job's own shape, the others count from 1."""
        if number == 0:
            return self.with_gang(**changes)
        others = self.gang.others
        changed = replace(others[number - 1], **changes)
        return self.with_gang(others=(*others[: number - 1], changed, *others[number:]))

    def with_devices(self, **changes: object) -> JobSpec:
        ask = self.gang.each.devices
        assert ask is not None
        return self.with_gang(each=replace(self.gang.each, devices=replace(ask, **changes)))

    @property
    def devices(self) -> DeviceAsk | None:
        return self.gang.each.devices

    def groups(self) -> list[GangAsk | GroupAsk]:
        """Return the groups of the gang, the job's own shape first."""
        return [self.gang, *self.gang.others]


def _last(values: Sequence[int], works: Callable[[int], bool]) -> int:
    """Return the index of the last value that works, given that those before it do too; -1 when none does."""
    if not values or not works(values[0]):
        return -1
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        if works(values[middle]):
            low = middle
        else:
            high = middle
    return low


def request(path: str, old: EditValue, new: EditValue, text: str, victims: tuple[JobId, ...] = ()) -> Edit:
    return Edit("request", path, old, new, text, starts_now=not victims, victims=victims)


def cluster(path: str, old: EditValue, new: EditValue, text: str) -> Edit:
    return Edit("cluster", path, old, new, text)
