"""What watching NVIDIA devices costs: CPU for a sample a second of 8 devices with 50 processes.

NVML is a stand-in that the real package calls as it calls the vendor's library: its functions are of Python and cost
more CPU than calls into a library do; the time that a driver itself takes is not in the figure. The reference is the
cost of the same calls without the provider. `watching_core_pct` adds what the process above the providers and the agent
do with each sample: pass on, decode, fold into the condition of the devices, meter the use of 8 replicas.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from bench.harness import result
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.devices.condition import Condition, Host
from penstock.devices.inventory import from_reading
from penstock.devices.meter import Held, Meter
from penstock.devices.nvidia import Nvidia
from penstock.devices.provider import Machine
from penstock.devices.reading import Reading
from penstock.devices.samples import DeviceSample, decode, encoded
from penstock.engines.processes.procfs import start_ticks
from tests.devices.nvidia_tools.recorded import read
from tests.devices.nvml_library import Library, Running, gpus_of, loaded

DEVICES, PROCESSES = 8, 50
LIMIT_PCT = 1.0


def machine() -> Library:
    """Return 8 recorded devices on one NVLink fabric, with 50 processes."""
    device = read("q-x-2.xml").devices[0]
    running = sorted(int(path.name) for path in Path("/proc").glob("[0-9]*"))  # their names are read, too
    gpus = gpus_of(*(replace(read("q-x-2.xml"), devices=(device,)) for _ in range(DEVICES)))
    for at, gpu in enumerate(gpus):
        gpu.fabric, gpu.group = (3, 0, 0), 1
        pids = range(at, PROCESSES, DEVICES)
        gpu.processes = [Running(pid=running[pid // DEVICES % len(running)], memory=2**30) for pid in pids]
        gpu.fields |= dict.fromkeys((29, 30, 31, 38, 45, 52, 59, 144, 145, 230), 0)
    return Library(*gpus)


def cpu_s(work: Callable[[], object], times: int) -> float:
    """Return the CPU seconds of one call, the mean of `times`."""
    begun = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - begun) / times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--quick", action="store_true", help="50 samples")
    given = parser.parse_args()
    times = 50 if given.quick else given.samples
    with loaded(machine()) as library:
        provider, sources = Nvidia(), Machine()
        provider.inventory(sources)
        sample = provider.sample(sources)
        assert (len(sample.devices), len(sample.processes)) == (DEVICES, PROCESSES)
        library.calls.clear()
        provider.sample(sources)
        calls = len(library.calls)
        each = cpu_s(lambda: provider.sample(sources), times)
        line = cpu_s(lambda: encoded(DeviceSample("nvidia", "sample", sample)), times)
        fold = cpu_s(folding(provider.inventory(sources), sample), times)
        bare = cpu_s(lambda: library.nvmlDeviceGetCount_v2(_Count()), times * 10) * calls
    reference = {"name": f"the {calls} calls of the stand-in alone, % of a core", "value": round(bare * 100, 4)}
    result("sampling_core_pct", (each + line) * 100, "% of a core", "lower", LIMIT_PCT, reference)
    result("watching_core_pct", (each + line + fold) * 100, "% of a core", "lower", LIMIT_PCT, None)
    result("sampling_calls", calls, "calls of NVML a sample", "lower", None)


def folding(inventory: Reading, sample: Reading) -> Callable[[], object]:
    """Return what is done with one sample behind the provider: each process belongs to one of eight replicas."""
    devices = from_reading("nvidia", inventory).devices
    condition, meter = Condition(devices), Meter()
    keys = [ReplicaKey(JobId(1), AttemptNumber(1), Rank(at)) for at in range(DEVICES)]
    held = [Held(key, device.index, 1000, 0) for key, device in zip(keys, devices, strict=True)]
    host = Host(is_ours=lambda pid: True, started=start_ticks, user_of=str)
    condition.take(DeviceSample("nvidia", "inventory", inventory), 0, host)
    at_ms = 0

    def work() -> None:
        nonlocal at_ms
        at_ms += 1000
        passed_on = (encoded(DeviceSample("nvidia", "sample", sample, at_ms)) + b"\n").split(b"\n")
        taken = decode(passed_on[0])
        condition.take(taken, at_ms, host)
        memory: dict[tuple[ReplicaKey, int], int] = {}
        for index, process in condition.processes():
            memory[keys[index], index] = memory.get((keys[index], index), 0) + (process.memory_bytes or 0)
        meter.take(at_ms, condition.figures_in(taken), held, memory)
        condition.faults(at_ms)
        condition.users()

    work()
    assert len(condition.figures()) == DEVICES
    return work


class _Count:
    """A number that a call fills in."""

    def __init__(self) -> None:
        self._obj = self
        self.value = 0


if __name__ == "__main__":
    main()
