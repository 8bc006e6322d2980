"""An `nvidia-smi` for simulated devices: MIG as the driver has it, kept in a file, so that all of it can be tried live.

It obeys the driver's rules: places and counts by the model's geometry, an instance holds a compute instance before a
program sees it, and is destroyed only when that is gone and nobody has it open. Its answers have the driver's words.
"""

import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from penstock.core.model.resources import Device
from penstock.core.place.mig import Geometry, MigProfile, geometry_of, starts
from penstock.devices.provider import TOOL_LIMIT_S, Output
from penstock.privatefiles import write_whole

MIB = 2**20
SEVEN_IDS = (19, 20, 15, 14, 9, 5, 0)
FOUR_IDS = (14, 21, 5, 6, 0)
"""Ids of profiles, in the order of a geometry's profiles, as drivers give them to A100 and A30; others count on."""
DEVICE, PART, WIDE = (41, 24, 22), (18, 34, 11, 23), (89,)
"""Widths of the columns: of the table of devices, of that of their instances, of the others."""
DEVICE_HEADINGS = (
    (" GPU  Name                 Persistence-M", " Bus-Id          Disp.A", " Volatile Uncorr. ECC"),
    (" Fan  Temp   Perf          Pwr:Usage/Cap", "           Memory-Usage", " GPU-Util  Compute M."),
    ("", "", "               MIG M."),
)
PART_HEADINGS = (
    (" GPU  GI  CI  MIG", "                     Memory-Usage", "        Vol", "        Shared"),
    ("      ID  ID  Dev", "                       BAR1-Usage", " SM     Unc", " CE ENC  DEC  OFA  JPG"),
    ("", "", "        ECC", ""),
)
PROCESS_HEADINGS = (
    " Processes:",
    "  GPU   GI   CI        PID   Type   Process name                              GPU Memory",
    "        ID   ID                                                               Usage",
)
INSTANCE_HEADINGS = ("GPU instances:", "GPU Name Profile Instance Placement", "ID ID Start:Size")
COMPUTE_HEADINGS = ("Compute instances:", "GPU GPU Name Profile Instance Placement", "Instance ID ID Start:Size", "ID")
PROFILE_HEADINGS = (
    "GPU instance profiles:",
    "GPU Name ID Instances Memory P2P SM DEC ENC",
    "Free/Total GiB CE JPEG OFA",
)
IN_USE, NO_ROOM = "In use by another client", "Insufficient Resources"


def simulated_uuid(index: int) -> str:
    """Return the name by which the simulated tool knows a device of the node."""
    return f"GPU-51000000-0000-4000-8000-{index:012x}"


class SimulatedInstance(msgspec.Struct):
    """A GPU instance, the ids of its compute instances, and the processes that have it open."""

    id: int
    profile: str
    start: int
    compute: list[int] = []
    processes: list[int] = []

    @property
    def shown(self) -> str:
        """The name of its compute instances: of one slice each where there are several."""
        return self.profile if len(self.compute) < 2 else f"1c.{self.profile}"


class State(msgspec.Struct):
    """All instances, by the tool's index of the device."""

    instances: dict[int, list[SimulatedInstance]] = {}


class _Refused(Exception):
    """What the tool says in place of doing it."""


class _Words(msgspec.Struct):
    """The options of one call."""

    action: str = ""
    value: str = ""
    gpu: int | None = None
    instance: int | None = None
    compute: int | None = None
    with_compute: bool = False


class SimulatedMig:
    """The simulated devices of a node that may be divided. MIG is on.

    Args:
        path: of the file that holds what was made; made when something is.
        devices: all devices of the node: the others are left out.
    """

    def __init__(self, path: Path, devices: Iterable[Device], *, mode: Literal["Enabled", "Disabled"] = "Enabled"):
        self._path, self._mode = path, mode
        self.devices = [d for d in devices if d.mig and d.simulated]
        self._geometries: dict[int, Geometry] = {}
        for index, device in enumerate(self.devices):
            geometry = geometry_of(device.model, device.memory_bytes)
            if geometry is not None:
                self._geometries[index] = geometry

    def read(self, path: str) -> str:
        return ""

    def glob(self, pattern: str) -> list[str]:
        return []

    def run(self, *command: str, limit_s: float = TOOL_LIMIT_S) -> Output:
        """Do what `nvidia-smi` would do."""
        if command[:1] != ("nvidia-smi",):
            return Output(missing=True)
        words = command[1:]
        if not words:
            return Output(self._plain(), code=0)
        if words == ("-L",):
            return Output(self._listing(), code=0)
        if words[0] != "mig":
            return Output(f'Invalid combination of input arguments: "{" ".join(words)}".\n', code=2)
        try:
            return Output(self._mig(_read(words[1:])), code=0)
        except _Refused as refused:
            return Output(str(refused), code=1)

    # What there is.

    def state(self) -> State:
        """Return all instances as they are now."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=State)
        except FileNotFoundError:
            return State()

    def _keep(self, state: State) -> None:
        write_whole(self._path, msgspec.json.encode(state), synced=False)

    def occupy(self, gpu: int, start: int, *pids: int) -> None:
        """Have these processes, and no others, hold the instance that starts there open."""
        state = self.state()
        for one in state.instances.get(gpu, []):
            if one.start == start:
                one.processes = list(pids)
        self._keep(state)

    def lies(self, gpu: int) -> list[tuple[str, int]]:
        """Return (profile, start) of each instance of a device, by start."""
        return sorted(((i.profile, i.start) for i in self.state().instances.get(gpu, [])), key=lambda one: one[1])

    def _ids(self, gpu: int) -> dict[str, int]:
        names = [profile.name for profile in self._geometries[gpu].profiles]
        usual = {7: SEVEN_IDS, 5: FOUR_IDS}.get(len(names), ())
        return dict(zip(names, usual or range(40, 40 + len(names)), strict=True))

    def _profile(self, gpu: int, name: str) -> MigProfile:
        profile = self._geometries[gpu].profile(name)
        assert profile is not None
        return profile

    # Lists.

    def _listing(self) -> str:
        state, lines = self.state(), []
        for gpu, device in enumerate(self.devices):
            lines.append(f"GPU {gpu}: {device.model} (UUID: {simulated_uuid(device.index)})")
            for at, (instance, compute) in enumerate(_visible(state.instances.get(gpu, []))):
                name = simulated_part_uuid(simulated_uuid(device.index), instance.id, compute)
                lines.append(f"  MIG {instance.shown:<11} Device {at:>2}: (UUID: {name})")
        return "".join(f"{line}\n" for line in lines) or "No devices found.\n"

    def _plain(self) -> str:
        state = self.state()
        lines = [*self._device_rows(), "", *self._part_rows(state), *self._process_rows(state)]
        return "".join(f"{line}\n" for line in lines)

    def _device_rows(self) -> list[str]:
        banner = " NVIDIA-SMI 560.35.03              Driver Version: 560.35.03      CUDA Version: 12.6"
        lines = [_edge(WIDE), _row(WIDE, banner), _edge(DEVICE)]
        lines += [_row(DEVICE, *heading) for heading in DEVICE_HEADINGS]
        lines.append(_edge(DEVICE, "="))
        for gpu, device in enumerate(self.devices):
            memory = f"      0MiB / {device.memory_bytes // MIB:>6}MiB"
            name, bus = f" {gpu:>3}  {device.model[:27]:<27}  On", f"   00000000:{gpu + 1:02X}:00.0 Off"
            lines += [
                _row(DEVICE, name, bus, f"{'On':>21}"),
                _row(DEVICE, " N/A   30C    P0             60W /  400W", memory, "     N/A      Default"),
                _row(DEVICE, "", "", f"{self._mode:>21}"),
                _edge(DEVICE),
            ]
        return lines

    def _part_rows(self, state: State) -> list[str]:
        rows = []
        for gpu in self._geometries:
            for at, (one, compute) in enumerate(_visible(state.instances.get(gpu, []))):
                memory = f"              0MiB / {self._profile(gpu, one.profile).memory_bytes // MIB}MiB"
                ids = f"{gpu:>3}{one.id:>5}{compute:>4}{at:>4}"
                rows += [
                    _row(PART, ids, memory, " 14      0", "  1   0    0    0    0"),
                    _row(PART, "", "              0MiB / 65535MiB", "", ""),
                    _edge(PART),
                ]
        headings = [_row(PART, *heading) for heading in PART_HEADINGS]
        title = [_edge(WIDE), _row(WIDE, " MIG devices:"), _edge(PART)]
        return [*title, *headings, _edge(PART, "="), *rows, ""] if rows else []

    def _process_rows(self, state: State) -> list[str]:
        rows = [
            _row(WIDE, f"  {gpu:>3}{one.id:>5}{compute:>5}{pid:>11}      C   {'program':<41}{16:>7}MiB")
            for gpu in self._geometries
            for one, compute in _visible(state.instances.get(gpu, []))
            for pid in one.processes
        ]
        headings = [_row(WIDE, heading) for heading in PROCESS_HEADINGS]
        none = _row(WIDE, "  No running processes found")
        return [_edge(WIDE), *headings, _edge(WIDE, "="), *(rows or [none]), _edge(WIDE)]

    def _mig(self, words: _Words) -> str:
        gpus = [words.gpu] if words.gpu is not None else list(self._geometries)
        gpus = [gpu for gpu in gpus if gpu in self._geometries]
        if not gpus or self._mode != "Enabled":
            raise _Refused("No MIG-enabled devices found.\n")
        match words.action:
            case "-lgi":
                return self._instances(gpus)
            case "-lci":
                return self._compute_instances(gpus)
            case "-lgip":
                return self._profiles(gpus)
            case "-cgi":
                return self._create(gpus[0], words)
            case "-cci":
                return self._create_compute(gpus[0], words)
            case "-dci":
                return self._destroy_compute(gpus[0], words)
            case "-dgi":
                return self._destroy(gpus[0], words)
        raise _Refused(f'Invalid combination of input arguments: "{words.action}".\n')

    def _instances(self, gpus: Sequence[int]) -> str:
        state = self.state()
        rows = [
            f" {gpu:>3}  MIG {one.profile:<16}{self._ids(gpu)[one.profile]:>4}{one.id:>9}"
            f"{one.start:>11}:{self._profile(gpu, one.profile).memory_slices}"
            for gpu in gpus
            for one in state.instances.get(gpu, [])
        ]
        if not rows:
            raise _Refused("No GPU instances found: Not Found\n")
        return _table(INSTANCE_HEADINGS, rows)

    def _compute_instances(self, gpus: Sequence[int]) -> str:
        state = self.state()
        rows = []
        for gpu in gpus:
            for one in state.instances.get(gpu, []):
                size = self._profile(gpu, one.profile).compute_slices if len(one.compute) == 1 else 1
                rows += [
                    f" {gpu:>3}{one.id:>7}       MIG {one.shown:<16}{size - 1:>4}{compute:>10}{compute:>11}:{size}"
                    for compute in one.compute
                ]
        if not rows:
            raise _Refused("No compute instances found: Not Found\n")
        return _table(COMPUTE_HEADINGS, rows)

    def _profiles(self, gpus: Sequence[int]) -> str:
        state = self.state()
        rows = []
        for gpu in gpus:
            ids, geometry = self._ids(gpu), self._geometries[gpu]
            occupied = [(one.profile, one.start) for one in state.instances.get(gpu, [])]
            for profile in geometry.profiles:
                free = len(starts(geometry, occupied, profile.name))
                memory = profile.memory_bytes / 2**30
                rows.append(
                    f" {gpu:>3}  MIG {profile.name:<14}{ids[profile.name]:>3}    {min(free, profile.count_max):>2}/"
                    f"{profile.count_max:<2}      {memory:>7.2f}      No  {14 * profile.compute_slices:>5}"
                    f"{profile.decoders:>6}     0\n{'1     0     0':>73}"
                )
        return _table(PROFILE_HEADINGS, rows)

    # Changes.

    def _create(self, gpu: int, words: _Words) -> str:
        name, _, start = words.value.partition(":")
        names = {str(number): known for known, number in self._ids(gpu).items()}
        profile = self._geometries[gpu].profile(names.get(name, name))
        what = f"create a GPU instance on GPU {gpu:>2} using profile {name}"
        if profile is None:
            raise _refused(what, "Invalid Argument")
        state = self.state()
        there = state.instances.setdefault(gpu, [])
        possible = starts(self._geometries[gpu], [(one.profile, one.start) for one in there], profile.name)
        at = int(start) if start else next(iter(possible), -1)
        if at not in possible:
            raise _refused(what, NO_ROOM if at in profile.starts or not start else "Invalid Argument")
        first = {self._geometries[gpu].memory_slices: 0, 1: 7, 2: 3}.get(profile.memory_slices, 1)
        taken = {one.id for one in there}
        made = SimulatedInstance(next(n for n in range(first, first + 100) if n not in taken), profile.name, at)
        there.append(made)
        using = f"using profile MIG {profile.name} (ID {self._ids(gpu)[profile.name]:>2})"
        text = f"Successfully created GPU instance ID {made.id:>2} on GPU {gpu:>2} {using}\n"
        if words.with_compute:
            text += self._with_compute(gpu, made)
        self._keep(state)
        return text

    def _with_compute(self, gpu: int, instance: SimulatedInstance) -> str:
        instance.compute.append(0)
        number = self._profile(gpu, instance.profile).compute_slices - 1
        return (
            f"Successfully created compute instance ID  0 on GPU {gpu:>2} GPU instance ID {instance.id:>2} "
            f"using profile MIG {instance.profile} (ID {number:>2})\n"
        )

    def _create_compute(self, gpu: int, words: _Words) -> str:
        state = self.state()
        instance = _one(state, gpu, words.instance)
        if instance is None:
            raise _Refused("Failed to create compute instances: Not Found\n")
        if instance.compute:
            where = f"on GPU {gpu:>2} GPU instance ID {instance.id:>2}"
            raise _refused(f"create a compute instance {where} using profile 0", NO_ROOM)
        text = self._with_compute(gpu, instance)
        self._keep(state)
        return text

    def _destroy_compute(self, gpu: int, words: _Words) -> str:
        state = self.state()
        instance = _one(state, gpu, words.instance)
        if instance is None or words.compute not in instance.compute:
            raise _Refused("No compute instances found: Not Found\n")
        which = f"compute instance ID {words.compute:>2} from GPU {gpu:>2} GPU instance ID {instance.id:>2}"
        if instance.processes:
            raise _refused(f"destroy {which}", IN_USE)
        instance.compute.remove(words.compute)
        self._keep(state)
        return f"Successfully destroyed {which}\n"

    def _destroy(self, gpu: int, words: _Words) -> str:
        state = self.state()
        instance = _one(state, gpu, words.instance)
        if instance is None:
            raise _Refused("No GPU instances found: Not Found\n")
        which = f"GPU instance ID {instance.id:>2} from GPU {gpu:>2}"
        if instance.compute or instance.processes:
            raise _refused(f"destroy {which}", IN_USE)
        state.instances[gpu].remove(instance)
        self._keep(state)
        return f"Successfully destroyed {which}\n"


def _refused(what: str, why: str) -> _Refused:
    verb, kind = what.split(" ", 1)[0], "compute" if "compute" in what else "GPU"
    return _Refused(f"Unable to {what}: {why}\nFailed to {verb} {kind} instances: {why}\n")


def simulated_part_uuid(gpu: str, instance: int, compute: int) -> str:
    """Return the name of a compute instance, the same for the same ids, as the driver has it."""
    return f"MIG-{uuid.uuid5(uuid.NAMESPACE_OID, f'{gpu}/{instance}/{compute}')}"


def _visible(instances: Iterable[SimulatedInstance]) -> list[tuple[SimulatedInstance, int]]:
    return [(one, compute) for one in sorted(instances, key=lambda one: one.id) for compute in one.compute]


def _one(state: State, gpu: int, instance: int | None) -> SimulatedInstance | None:
    return next((one for one in state.instances.get(gpu, []) if one.id == instance), None)


def _edge(widths: Sequence[int], line: str = "-") -> str:
    return "+" + "+".join(line * width for width in widths) + "+"


def _row(widths: Sequence[int], *cells: str) -> str:
    return "|" + "|".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + "|"


def _table(headings: Sequence[str], rows: Sequence[str]) -> str:
    """Return a table as the tool draws it; a row may have several lines."""
    width = max(len(line) for row in rows for line in row.split("\n")) + 1
    lines = [_edge((width,)), *(_row((width,), f" {heading}") for heading in headings), f"|{'=' * width}|"]
    for row in rows:
        lines += [*(_row((width,), line) for line in row.split("\n")), _edge((width,))]
    return "".join(f"{line}\n" for line in lines)


def _read(words: Sequence[str]) -> _Words:
    """Return the options of `nvidia-smi mig`, in any order."""
    read, rest = _Words(), list(words)
    numbers = {"-i": "gpu", "-gi": "instance", "-ci": "compute"}
    while rest:
        word = rest.pop(0)
        if word in numbers and rest and rest[0].isdecimal():
            setattr(read, numbers[word], int(rest.pop(0)))
        elif word == "-C":
            read.with_compute = True
        elif word == "-cgi" and rest:
            read.action, read.value = word, rest.pop(0)
        elif word in ("-lgi", "-lci", "-lgip", "-cci", "-dci", "-dgi") and not read.action:
            read.action = word
        else:
            raise _Refused(f"Option \"{word}\" is not recognized. Please run 'nvidia-smi mig -h'.\n")
    return read
