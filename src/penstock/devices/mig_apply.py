"""Makes and destroys MIG instances of a machine's devices by plan, and knows whom each was given to.

Theory. Nothing is remembered that the driver knows: each operation reads the state anew, plans from it and from what
the journal says is given out (`core.place.mig_plan`), and does the steps one by one. Before a step the journal has it;
right before something is destroyed it is looked at once more. After a crash, or an answer that did not come, the next
operation finds the begun step in the journal, and the driver says how far it got: an instance that was to be made is
completed, one that was to go is removed. An instance is destroyed only when nobody was given it and no process has it
open; the driver refuses that as well. What nobody uses stays: the next owner of that place needs no step.

MIG itself is never switched on or off here: that needs the whole device idle, and often a reset.
"""

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from penstock.core.place.mig import Instance, illegal
from penstock.core.place.mig_plan import CutDevice, MigPlan, NoLayout, PresentInstance, Strategy, plan, strategy_plan
from penstock.devices.mig_journal import Given, LockHeld, MigJournal, MigLock, Place
from penstock.devices.nvidia_tools.mig_answers import answer
from penstock.devices.nvidia_tools.mig_facts import MigReading
from penstock.devices.nvidia_tools.mig_state import (
    TOOL,
    MigDevice,
    MigInstance,
    Unreadable,
    read_profiles,
    read_state,
    unusable,
)
from penstock.devices.provider import Sources
from penstock.devices.reading import short

JOURNAL = "mig.journal"
Command = tuple[str, ...]
Result = TypeVar("Result")


class NotMade(msgspec.Struct, frozen=True):
    """What was wanted was not done, or not all of it."""

    reason: str
    passing: bool = False
    """Another try may succeed: the driver lets go of an instance a little late, a program is just ending."""


class Applied(msgspec.Struct, frozen=True):
    """A plan, with the commands that do it."""

    plan: MigPlan
    commands: tuple[Command, ...]


class MigKeeper:
    """The MIG instances of the devices of one node.

    Every operation may take many seconds: the tool does, and it is called several times. All devices are named by the
    uuid that the tool prints.

    Args:
        folder: of the node: the journal and the lock lie there.
        sources_of: returns where to run the tool, given a descriptor that the tool's processes have to inherit.
    """

    def __init__(
        self,
        folder: Path,
        sources_of: Callable[[int], Sources],
        *,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._lock = MigLock(folder / "mig.lock", pause)
        self._sources = sources_of(self._lock.descriptor)
        self._path = folder / JOURNAL
        self._kept: MigJournal | None = None

    @property
    def _journal(self) -> MigJournal:
        """The journal, read once the lock is held."""
        if self._kept is None:
            self._kept = MigJournal(self._path)
        return self._kept

    def close(self) -> None:
        """Let go of the files. What was given out stays so."""
        if self._kept is not None:
            self._kept.close()
        self._lock.close()

    def give(self, owner: str, place: Place) -> Given | NotMade:
        """Give an owner the instance at a place: one that is there and free, else one that is made now.

        The same owner may ask again and gets the same. What is in the way and not in use is destroyed.
        """
        return self._locked(lambda: self._give(owner, place))

    def take_back(self, owner: str) -> None:
        """Note that no process of an owner is left. Its instance stays for the next one."""

        def take() -> NotMade | None:
            if owner in self._journal.given:
                self._journal.take_back(owner)
            return None

        self._locked(take)

    def keep_only(self, owners: Collection[str]) -> None:
        """After a start: take back what was given to owners that are no more."""

        def keep() -> NotMade | None:
            for owner in sorted(self._journal.given.keys() - set(owners)):
                self._journal.take_back(owner)
            return None

        self._locked(keep)

    def instances(self) -> dict[str, tuple[Instance, ...]] | NotMade:
        """Return the instances of each device on which MIG is on, by start: those that a program can run in."""
        state = read_state(self._sources)
        if isinstance(state, Unreadable):
            return NotMade(f"the state of MIG is not known: {state.reason}", passing=True)
        return {
            device.uuid: tuple(Instance(one.profile, one.start) for one in device.instances if one.uuid)
            for device in state
            if not _cannot_be_divided(device)
        }

    def divide(self, gpu: str, strategy: Strategy) -> Applied | NotMade:
        """Divide a device by a strategy, beside what is in use."""
        return self._locked(lambda: self._divide(gpu, strategy))

    def _locked(self, do: Callable[[], Result]) -> Result | NotMade:
        try:
            with self._lock.locked():
                return do()
        except LockHeld:
            return NotMade("a tool of a former agent still changes the instances of this node", passing=True)
        except OSError as error:
            return NotMade(f"the journal of MIG instances cannot be written: {error}")

    # With the lock held.

    def _give(self, owner: str, place: Place) -> Given | NotMade:
        known = self._journal.given.get(owner)
        if known is not None and known.place != place:
            return NotMade(f"{owner} has {_named(known.place)} already")
        device = self._settled(place.gpu)
        if isinstance(device, NotMade):
            return device
        there = _at(device, place)
        if known is not None and there is not None and there.uuid == known.uuid:
            return known
        taker = next((who for who, given in self._journal.given.items() if given.place == place and who != owner), "")
        if taker:
            return NotMade(f"{_named(place)} is given to {taker}")
        if there is not None and there.pids:
            return NotMade(f"process {there.pids[0]} has {_named(place)} open", passing=True)
        if there is not None and not there.compute and place not in self._journal.begun:
            return self._completed(device, there, owner, place)
        cut = _cut(device, self._journal, without=owner)
        if isinstance(cut, NotMade):
            return cut
        made = plan([cut], wanted_at={device.index: [Instance(place.profile, place.start)]})
        if isinstance(made, NoLayout):
            return NotMade(made.reason, passing=bool(self._journal.begun) or any(one.pids for one in device.instances))
        if problem := self._carry_out(device, made):
            return problem
        after = self._read(place.gpu) if made.steps else device
        return after if isinstance(after, NotMade) else self._given(after, owner, place)

    def _completed(self, device: MigDevice, there: MigInstance, owner: str, place: Place) -> Given | NotMade:
        """Give an instance that was left without its compute instance."""
        self._journal.begin("create", place)
        if refused := self._complete(device, there):
            return refused
        self._journal.end(place)
        after = self._read(place.gpu)
        return after if isinstance(after, NotMade) else self._given(after, owner, place)

    def _given(self, device: MigDevice, owner: str, place: Place) -> Given | NotMade:
        there = _at(device, place)
        if there is None or not there.uuid:
            return NotMade(f"{_named(place)} was not made, though the tool refused nothing", passing=True)
        given = Given(place, there.uuid)
        self._journal.give(owner, given)
        return given

    def _divide(self, gpu: str, strategy: Strategy) -> Applied | NotMade:
        device = self._settled(gpu)
        if isinstance(device, NotMade):
            return device
        planned = _planned(device, self._journal, self._sources, strategy)
        if isinstance(planned, NotMade):
            return planned
        return self._carry_out(device, planned.plan) or planned

    def _read(self, gpu: str) -> MigDevice | NotMade:
        return _read(self._sources, gpu)

    def _settled(self, gpu: str) -> MigDevice | NotMade:
        """Return a device after the steps that were begun there have been completed or undone, as far as they can."""
        device = self._read(gpu)
        if isinstance(device, NotMade):
            return device
        begun = [(place, what) for place, what in self._journal.begun.items() if place.gpu == gpu]
        for place, what in begun:
            self._settle(device, place, what)
        return self._read(gpu) if begun else device

    def _settle(self, device: MigDevice, place: Place, what: Literal["destroy", "create"]) -> None:
        there = _at(device, place)
        half = there is not None and not there.compute
        if there is not None and half and (what == "destroy" or self._complete(device, there)):
            half = self._run(_remove(device, there)) is not None
        elif what == "create":
            half = False
        if not half:
            self._journal.end(place)

    def _complete(self, device: MigDevice, one: MigInstance) -> NotMade | None:
        """Make the compute instance of an instance that has none."""
        return self._run((TOOL, "mig", "-i", str(device.index), "-gi", str(one.instance), "-cci"))

    def _carry_out(self, device: MigDevice, made: MigPlan) -> NotMade | None:
        """Do the steps of a plan; return what stopped it. What was done by then is legal, and stays."""
        commands = _commands(device, made, self._sources)
        if isinstance(commands, NotMade):
            return commands
        for step, (place, each) in zip(made.steps, commands, strict=True):
            if step.action == "destroy" and (problem := self._still_idle(device, place)):
                return problem
            self._journal.begin(step.action, place)
            refused = next((problem for command in each if (problem := self._run(command))), None)
            if refused is not None:
                self._after_refusal(place)
                return refused
            self._journal.end(place)
        return None

    def _still_idle(self, device: MigDevice, place: Place) -> NotMade | None:
        """Look once more, right before an instance is destroyed."""
        now = self._read(place.gpu)
        if isinstance(now, NotMade):
            return now
        before, there = _at(device, place), _at(now, place)
        if there is None or before is None or (there.instance, there.compute) != (before.instance, before.compute):
            return NotMade(f"{_named(place)} has changed since it was planned to go", passing=True)
        if there.pids or any(process for process in now.pids):
            return NotMade(f"process {(*there.pids, *now.pids)[0]} has {_named(place)} open", passing=True)
        return None

    def _after_refusal(self, place: Place) -> None:
        """Complete or undo a step that did not succeed, if that can be done now; else the next operation does."""
        device = self._read(place.gpu)
        if isinstance(device, NotMade):
            return
        there = _at(device, place)
        if there is None or there.compute or not self._complete(device, there):
            self._journal.end(place)

    def _run(self, command: Command) -> NotMade | None:
        """Run one change; return why it is not sure to have been made."""
        output = self._sources.run(*command)
        if problem := unusable(output, *command[1:]):
            return NotMade(problem, passing=output.timed_out)
        read = answer(output.text or output.error_text)
        if output.passed and read.changes and not read.refusals:
            return None
        passing = any(refusal.reason == "in_use" for refusal in read.refusals)
        return NotMade(f"{' '.join(command)}: {_refusal(read)}", passing=passing)


def preview(folder: Path, sources: Sources, gpu: str, strategy: Strategy) -> Applied | NotMade:
    """Return how a device would be divided by a strategy beside what is in use, and by which commands: a dry run.

    Nothing is changed, and no file of the node is written: its agent may live.
    """
    device = _read(sources, gpu)
    if isinstance(device, NotMade):
        return device
    return _planned(device, MigJournal(folder / JOURNAL, read_only=True), sources, strategy)


def _planned(device: MigDevice, journal: MigJournal, sources: Sources, strategy: Strategy) -> Applied | NotMade:
    cut = _cut(device, journal)
    if isinstance(cut, NotMade):
        return cut
    made = strategy_plan(cut, strategy)
    commands = _commands(device, made, sources)
    if isinstance(commands, NotMade):
        return commands
    return Applied(made, tuple(command for _, each in commands for command in each))


def _read(sources: Sources, gpu: str) -> MigDevice | NotMade:
    """Return a device on which MIG is on, as it is now."""
    state = read_state(sources)
    if isinstance(state, Unreadable):
        return NotMade(f"the state of MIG is not known: {state.reason}")
    device = next((device for device in state if device.uuid == gpu), None)
    if device is None:
        return NotMade(f"{TOOL} does not list device {gpu}, or says too little of it")
    problem = _cannot_be_divided(device)
    return NotMade(problem) if problem else device


def _cut(device: MigDevice, journal: MigJournal, without: str = "") -> CutDevice | NotMade:
    """Return a device as the planner takes it: what is given out is in use, whether or not it is there."""
    geometry = device.geometry
    assert geometry is not None
    given = {g.place for owner, g in journal.given.items() if owner != without and g.place.gpu == device.uuid}
    held = given | journal.begun.keys()
    present = [_present(one, held=_place(device, one) in held) for one in device.instances]
    listed = {(one.profile, one.start) for one in device.instances}
    present += [
        PresentInstance(place.profile, place.start, in_use=True)
        for place in sorted(given)
        if (place.profile, place.start) not in listed
    ]
    if reason := illegal(geometry, [(one.profile, one.start) for one in present]):
        return NotMade(f"what is on device {device.index} is not what is known of it: {reason}")
    return CutDevice(device.index, geometry, tuple(present))


def _commands(device: MigDevice, made: MigPlan, sources: Sources) -> list[tuple[Place, tuple[Command, ...]]] | NotMade:
    """Return the commands of each step."""
    ids: dict[str, int] = {}
    if any(step.action == "create" for step in made.steps):
        read = read_profiles(sources, device.index)
        if isinstance(read, Unreadable):
            return NotMade(f"the profiles of device {device.index} are not known: {read.reason}")
        ids = read
    commands: list[tuple[Place, tuple[Command, ...]]] = []
    for step in made.steps:
        place = Place(device.uuid, *step.instance)
        if step.action == "destroy":
            there = _at(device, place)
            assert there is not None, "the plan is of this device"
            inside = (_remove_compute(device, there, compute) for compute in there.compute)
            commands.append((place, (*inside, _remove(device, there))))
        elif place.profile not in ids:
            return NotMade(f"device {device.index} has no profile {place.profile}: it has {', '.join(sorted(ids))}")
        else:
            what = f"{ids[place.profile]}:{place.start}"
            commands.append((place, ((TOOL, "mig", "-i", str(device.index), "-cgi", what, "-C"),)))
    return commands


def _remove(device: MigDevice, one: MigInstance) -> Command:
    return (TOOL, "mig", "-i", str(device.index), "-gi", str(one.instance), "-dgi")


def _remove_compute(device: MigDevice, one: MigInstance, compute: int) -> Command:
    where = ("-i", str(device.index), "-gi", str(one.instance), "-ci", str(compute))
    return (TOOL, "mig", *where, "-dci")


def _cannot_be_divided(device: MigDevice) -> str:
    """Return why nothing can be made on a device, and what an administrator does about it; or ''."""
    if device.pending:
        return f"MIG is switched on device {device.index} at its next reset: {TOOL} --gpu-reset, or a restart"
    if device.enabled is False:
        by_hand = f"{TOOL} -i {device.index} -mig 1"
        return f"MIG is off on device {device.index}; an administrator switches it on while it is idle: {by_hand}"
    if device.enabled is None or device.geometry is None:
        return f"device {device.index} cannot be divided by MIG"
    return ""


def _refusal(read: MigReading) -> str:
    texts = dict.fromkeys(finding.text for finding in read.findings)
    return short("; ".join(texts)) if texts else "it says neither that it did it nor why not"


def _present(one: MigInstance, *, held: bool) -> PresentInstance:
    """Return an instance as the planner takes it. One that others have divided further is theirs.

    Args:
        held: it is given out, or a step that was begun there cannot be ended yet.
    """
    divided = len(one.compute) > 1 or (bool(one.compute) and not one.uuid)
    return PresentInstance(one.profile, one.start, in_use=held or divided or bool(one.pids))


def _place(device: MigDevice, one: MigInstance) -> Place:
    return Place(device.uuid, one.profile, one.start)


def _at(device: MigDevice, place: Place) -> MigInstance | None:
    return next((one for one in device.instances if (one.profile, one.start) == (place.profile, place.start)), None)


def _named(place: Place) -> str:
    return f"the instance {place.profile} at {place.start}"
