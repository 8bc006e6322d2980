"""Limits of power by vendors' tools: what is set, what is refused, what is taken back. Tools that obey, and tools that
do nothing and say that all is well."""

import json
import time

import pytest

from penstock import starts
from penstock.devices.amd import Amd
from penstock.devices.nvidia import Nvidia
from penstock.devices.power_keeper import AGAIN_MS, FILE, TIME_LIMIT_MS, TRY_AGAIN_MS, PowerKeeper
from penstock.devices.power_limits import LimitedDevice, NotLimited, PowerLimits, keep, wanted_of
from penstock.devices.provider import Machine, Output
from penstock.devices.simulated_files import SimulatedFiles
from penstock.testing.builders import device
from penstock.testing.devices import Recorded
from tests.devices.vendor_machines import AMD_UUIDS, PCI, amd_figures, kfd_files

GPU = "GPU-5b1ee0a4-0f0d-6d20-5b0d-0f6a8b0c8a11"
W = 1_000
HAS = PowerLimits(700 * W, 700 * W, 200 * W, 700 * W)


@pytest.mark.parametrize(
    ("limit_w", "wanted_w", "said"),
    [
        (0, 700, False),
        (400, 400, False),
        (200, 200, False),
        (700, 700, False),
        (900, 700, False),
        (150, 200, True),
    ],
)
def test_a_limit_is_kept_within_what_the_vendor_allows(limit_w, wanted_w, said):
    wanted_mw, note = wanted_of(limit_w * W, HAS)
    assert (wanted_mw, bool(note)) == (wanted_w * W, said)


class Smi(Recorded):
    """`nvidia-smi` of one GPU: it obeys, or answers with `answer` and does nothing."""

    def __init__(self, answer: Output | None = None) -> None:
        super().__init__()
        self.now_w, self.answer = 700.0, answer

    def run(self, *command, limit_s=0.0):
        self.asked.append(command)
        assert command[:3] == ("nvidia-smi", "-i", GPU)
        if command[3] == "-pl":
            if self.answer is not None:
                return self.answer
            self.now_w = float(command[4])
            return Output(f"Power limit for GPU 00000000:06:00.0 was set to {self.now_w:.2f} W.\nAll done.\n", code=0)
        return Output(f"{self.now_w:.2f}, 700.00, 200.00, 700.00\n", code=0)

    def changes(self):
        return [command[4] for command in self.asked if command[3] == "-pl"]


def test_a_gpu_gets_the_limit_once_and_its_own_again():
    smi, nvidia = Smi(), Nvidia()
    assert [nvidia.limit_power(smi, GPU, mw) for mw in (300_500, 300_500, 0, 0)] == ["", "", "", ""]
    assert smi.changes() == ["300.5", "700"]


def test_a_limit_below_the_least_is_the_least_and_that_is_said():
    smi = Smi()
    assert Nvidia().limit_power(smi, GPU, 100 * W) == "its vendor allows no less than 200 W, which it has"
    assert smi.changes() == ["200"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            Output("Failed to set power management limit for GPU 00000000:06:00.0: Insufficient Permissions\n", code=4),
            "Failed to set power management limit for GPU 00000000:06:00.0: Insufficient Permissions",
        ),
        (
            Output(
                "Changing power management limit is not supported for GPU: 00000000:06:00.0.\n"
                "Treating as warning and moving on.\nAll done.\n",
                code=0,
            ),
            "Changing power management limit is not supported for GPU: 00000000:06:00.0.",
        ),
        (Output(timed_out=True), "the vendor's tool did not end in time"),
        (Output(code=0), "it still has 700 W"),
    ],
)
def test_a_tool_that_does_nothing_is_not_believed(answer, why):
    # Answers: stackhpc/ansible-slurm-appliance pull request 975, Dreaming-Codes/nvidia_oc pull request 22, and others.
    assert Nvidia().limit_power(Smi(answer), GPU, 300 * W) == why


@pytest.mark.parametrize("printed", ["", "[N/A], [N/A], [N/A], [N/A]\n", "700.00, 700.00\n", "No devices were found\n"])
def test_a_gpu_whose_limits_cannot_be_read_is_left_alone(printed):
    query = "--query-gpu=power.limit,power.default_limit,power.min_limit,power.max_limit"
    smi = Recorded({("nvidia-smi", "-i", GPU, query, "--format=csv,noheader,nounits"): printed})
    assert Nvidia().limit_power(smi, GPU, 300 * W) == "its limits cannot be read: it may not have any"
    assert len(smi.asked) == 1


def test_an_instance_of_mig_is_left_alone():
    smi = Recorded()
    assert Nvidia().limit_power(smi, "MIG-1", 300 * W) == "an instance of MIG has no limit of its own"
    assert not smi.asked


class AmdSmi(Recorded):
    """`amd-smi set --power-cap`: it changes the kernel's file, where it is called in the way that it knows."""

    def __init__(self, *, kind: tuple[str, ...]) -> None:
        self.folder, self.kind = f"{PCI}/0000:63:00.0/hwmon/hwmon3", kind
        bounds = {"power1_cap_default": 300, "power1_cap_min": 100, "power1_cap_max": 300}
        files = {f"{self.folder}/{name}": f"{watts * 10**6}\n" for name, watts in bounds.items()}
        super().__init__({}, {"/dev/kfd": "", **kfd_files(), **amd_figures(), **files})

    def run(self, *command, limit_s=0.0):
        self.asked.append(command)
        assert command[:5] == ("amd-smi", "set", "-g", "0000:63:00.0", "--power-cap")
        if command[6:] != self.kind:
            return Output(error_text="ValueError: Invalid number of arguments for --power-cap\n", code=1)
        self.files[f"{self.folder}/power1_cap"] = f"{int(command[5]) * 10**6}\n"
        return Output("GPU: 0\n    POWERCAP: Successfully set\n", code=0)


@pytest.mark.parametrize(("kind", "calls"), [((), 2), (("ppt0",), 4)])
def test_an_amd_gpu_gets_the_limit_and_its_own_again_in_either_spelling(kind, calls):
    tool = AmdSmi(kind=kind)
    assert [Amd().limit_power(tool, AMD_UUIDS[0], mw) for mw in (250 * W, 250 * W, 0)] == ["", "", ""]
    assert tool.files[f"{tool.folder}/power1_cap"] == "300000000\n"
    assert len(tool.asked) == calls


def test_an_amd_gpu_that_the_tool_does_not_change_is_named_in_its_words():
    tool = AmdSmi(kind=("another",))
    assert Amd().limit_power(tool, AMD_UUIDS[0], 250 * W) == "ValueError: Invalid number of arguments for --power-cap"


def test_devices_of_other_vendors_are_named_while_a_limit_is_wanted():
    others = [LimitedDevice(0, "huawei", "0"), LimitedDevice(1, "none", "")]
    found = keep(others, 300 * W, [Nvidia()], Recorded())
    assert found[0] == NotLimited(0, "Penstock cannot limit the power of huawei devices")
    assert [one.index for one in found] == [0, 1]
    assert keep(others, 0, [Nvidia()], Recorded()) == []


def test_simulated_devices_keep_to_it(tmp_path):
    (tmp_path / "0").write_text('{"power_mw": 380000, "power_limit_mw": 400000}')
    (tmp_path / "1").write_text('{"power_mw": 90000}')
    (tmp_path / "2").write_text("{")
    simulated, machine = SimulatedFiles(tmp_path), Machine()
    assert [simulated.limit_power(machine, f"SIM-{i}", 300 * W) for i in (0, 1)] == ["", ""]
    assert simulated.limit_power(machine, "SIM-2", 300 * W)
    figures = [(one.power_mw, one.power_limit_mw) for one in simulated.sample(machine).devices]
    assert figures[:2] == [(300 * W, 300 * W), (90 * W, 300 * W)]
    assert simulated.limit_power(machine, "SIM-0", 0) == ""
    assert simulated.sample(machine).devices[0].power_limit_mw == 400 * W


# The agent's end, with the process that it runs.


@pytest.fixture
def simulated(tmp_path):
    """A node's folder with two simulated devices."""
    (tmp_path / "devices").mkdir()
    for index in (0, 1):
        (tmp_path / "devices" / str(index)).write_text('{"power_limit_mw": 400000}')
    return tmp_path


def keeper_of(folder, vendor="simulated"):
    devices = [device(0, vendor="simulated", uuid="SIM-0"), device(1, vendor=vendor, uuid="SIM-1")]
    return PowerKeeper(devices, folder, ["--folder", str(folder / "devices")])


def settled(keeper, now_ms=0):
    """Let the keeper do what is due, and wait for its process."""
    keeper.turn(now_ms)
    deadline = time.monotonic() + 30
    while keeper.working and time.monotonic() < deadline:
        time.sleep(0.01)
        keeper.turn(now_ms)
    assert not keeper.working
    return keeper


def limits(folder):
    return json.loads((folder / "devices" / "power-limits").read_text())


def test_a_limit_outlives_its_agent_and_is_taken_back_when_it_goes(simulated):
    former = keeper_of(simulated)
    former.turn(0)
    assert not former.working, "nothing is due where no limit was ordered"
    former.limit(300 * W)
    assert limits(settled(former) and simulated) == {"0": 300 * W, "1": 300 * W}
    (simulated / "devices" / "power-limits").write_text("{}")  # the driver was loaded anew, say
    agent = settled(keeper_of(simulated))
    assert (agent.limit_mw, agent.notes, limits(simulated)) == (300 * W, (), {"0": 300 * W, "1": 300 * W})
    agent.limit(0)
    assert (simulated / FILE).exists(), "not before they have their own again"
    settled(agent)
    assert (limits(simulated), (simulated / FILE).exists(), keeper_of(simulated).limit_mw) == ({}, False, 0)


def test_what_was_set_is_looked_at_again_and_sooner_where_something_failed(simulated):
    keeper = keeper_of(simulated)
    keeper.limit(300 * W)
    settled(keeper)
    (simulated / "devices" / "power-limits").write_text("{}")
    settled(keeper, AGAIN_MS - 1)
    assert limits(simulated) == {}
    settled(keeper, AGAIN_MS)
    assert limits(simulated) == {"0": 300 * W, "1": 300 * W}
    other = keeper_of(simulated, "huawei")
    said = "limit of power 300 W is not set: device 1: Penstock cannot limit the power of huawei devices"
    assert settled(other).notes == (said,)
    other.turn(TRY_AGAIN_MS)
    assert other.working
    other.end()


def test_a_limit_that_comes_while_another_is_set_is_set_next(simulated):
    keeper = keeper_of(simulated)
    keeper.limit(300 * W)
    keeper.turn(0)
    keeper.limit(200 * W)
    settled(settled(keeper))
    assert limits(simulated) == {"0": 200 * W, "1": 200 * W}


@pytest.mark.parametrize(
    ("words", "at_ms", "why"),
    [
        (["sleep", "600"], TIME_LIMIT_MS, "the vendor's tool does not answer"),
        (["echo", "x"], 0, "the process that sets it has ended (0)"),
        (["/nowhere/at/all"], 0, "[Errno 2] No such file or directory: '/nowhere/at/all'"),
    ],
)
def test_a_process_that_gives_no_answer_is_said_and_costs_no_more(simulated, monkeypatch, words, at_ms, why):
    monkeypatch.setattr(starts, "python", lambda *_: words)
    keeper = keeper_of(simulated)
    keeper.limit(300 * W)
    keeper.turn(0)
    assert settled(keeper, at_ms).notes == (f"limit of power 300 W is not set: {why}",)
