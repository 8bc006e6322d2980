"""The processes that ask vendors' libraries and tools: `python -m penstock.devices.process`.

Theory. A driver may hang, for ever and unkillably, and a vendor's library may crash its caller. So each provider
is called in a process of its own, which writes a line for each reading. The process above it, which the agent starts,
loads no library of a vendor: it ends a provider that is silent for too long, starts it again after a pause that grows,
and passes the lines on. It ends when its input does: when the agent has died.
"""

import argparse
import contextlib
import os
import pwd
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import IO

import msgspec

from penstock import starts
from penstock.devices.holders import holders
from penstock.devices.provider import DeviceProvider, Machine, Sources
from penstock.devices.reading import Finding, ProcessFacts, Reading, short
from penstock.devices.samples import LINE_MAX, DeviceSample, encoded

SAMPLE_EVERY_S = 1.0
INVENTORY_EVERY_S = 300.0
"""Beside the inventories taken when other devices are sampled than were listed."""
INVENTORY_LIMIT_S = 60.0
"""Tools take long while a driver starts: nvidia-smi without persistence mode, several seconds for each device."""
RELOAD_AFTER_S = 60.0
SAMPLE_LIMIT_S = 30.0
"""Longer than that of one run of a tool, which is then a finding: some tools take a second and more for each device."""
PAUSE_FIRST_S, PAUSE_MOST_S = 1.0, 60.0
END_WAIT_S = 0.2
STUCK_MAX = 3
"""Processes of one provider that could not be ended: they wait in the kernel, and another would do so too."""


def provide(
    provider: DeviceProvider, sources: Sources, write: Callable[[bytes], None], pause: Callable[[], bool]
) -> None:
    """Write an inventory, then a sample a second, and a new inventory when the devices are others.

    Args:
        pause: waits for the next sample; returns False when no more is wanted.
    Returns where the driver was replaced under the vendor's library, after a while: a new process loads the new one.
    """
    begun_s = time.monotonic()
    while True:
        listed = provider.inventory(sources)
        write(encoded(DeviceSample(provider.vendor, "inventory", listed)))
        until_s = time.monotonic() + INVENTORY_EVERY_S
        while time.monotonic() < until_s:
            if not pause():
                return
            sampled = provider.sample(sources)
            if getattr(provider, "open_means_use", False):
                known = {one.pid for one in sampled.processes}
                more = tuple(one for one in holders(listed.devices) if one.pid not in known)
                sampled = msgspec.structs.replace(sampled, processes=sampled.processes + more)
            sampled = msgspec.structs.replace(sampled, processes=tuple(map(with_user, sampled.processes)))
            write(encoded(DeviceSample(provider.vendor, "sample", sampled, boot_ms())))
            replaced = any(one.code == "driver_mismatch" for one in sampled.findings)
            if replaced and time.monotonic() - begun_s >= RELOAD_AFTER_S:
                return
            if _has_new(sampled, listed):
                break


def with_user(process: ProcessFacts) -> ProcessFacts:
    """Return a process with the name of its user, looked up here: a directory service may let its callers wait."""
    if process.user:
        return process
    try:
        return msgspec.structs.replace(process, user=_user_name(os.stat(f"/proc/{process.pid}").st_uid))
    except OSError:
        return process


@cache
def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def boot_ms() -> int:
    """Return milliseconds since the machine was started, as its agent counts them."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def _has_new(sampled: Reading, listed: Reading) -> bool:
    """Return whether a sample shows a device that is in an inventory by none of its names.

    Samples may name devices by their addresses or indexes alone.
    """
    known: set[str | int | None] = {name for one in listed.devices for name in (one.uuid, one.pci, one.index)}
    for one in sampled.devices:
        names: set[str | int | None] = {name for name in (one.uuid, one.pci) if name} or {one.index}
        if not names & known:
            return True
    return False


class _Watched:
    """One provider's process, as the process above it sees it."""

    def __init__(self, vendor: str, words: Sequence[str]) -> None:
        self.vendor, self._words = vendor, list(words)
        self.process: subprocess.Popen[bytes] | None = None
        self.begin_at_s = 0.0
        self.deadline_s = 0.0
        self._pause_s = PAUSE_FIRST_S
        self._stuck: list[subprocess.Popen[bytes]] = []
        self._rest = b""

    def begin(self, now_s: float) -> IO[bytes] | None:
        """Start it, and return its output; not while too many of it wait in the kernel."""
        self._stuck = [one for one in self._stuck if one.poll() is None]
        self.begin_at_s = now_s + self._pause_s
        self._pause_s = min(PAUSE_MOST_S, 2 * self._pause_s)
        if len(self._stuck) >= STUCK_MAX:
            return None
        self._rest = b""
        with contextlib.suppress(OSError):
            self.process = subprocess.Popen(  # noqa: S603 - this program itself
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd=starts.HOME,
                env=starts.environment(),
            )
            self.deadline_s = now_s + INVENTORY_LIMIT_S
            return self.process.stdout
        return None

    def end(self) -> None:
        """Kill it with the tools that it runs, without waiting."""
        process, self.process = self.process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        for end in (process.stdin, process.stdout):
            if end is not None:
                end.close()
        try:
            process.wait(END_WAIT_S)
        except subprocess.TimeoutExpired:
            self._stuck.append(process)

    def lines(self, data: bytes, now_s: float) -> list[bytes]:
        """Return the whole lines that have come; each is a sign of life."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        if whole:
            self.deadline_s = now_s + SAMPLE_LIMIT_S
            self._pause_s = PAUSE_FIRST_S
        return whole if len(self._rest) <= LINE_MAX else []


def _exit_code(process: subprocess.Popen[bytes]) -> int | None:
    """Return the exit code of a process whose output has just ended: it is over a moment later. None: it is not."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(END_WAIT_S)
    return None


class Supervisor:
    """Runs a process for each provider, and passes on what they write.

    Args:
        words: the command of each provider's process, by vendor.
        write: takes whole lines.
    """

    def __init__(self, words: dict[str, list[str]], write: Callable[[bytes], None]) -> None:
        self._watched = [_Watched(vendor, command) for vendor, command in words.items()]
        self._write = write
        self._selector = selectors.DefaultSelector()

    def run(self, ending: int) -> None:
        """Work until the descriptor `ending` has reached its end."""
        self._selector.register(ending, selectors.EVENT_READ)
        try:
            while self._turn(ending):
                pass
        finally:
            for one in self._watched:
                one.end()

    def _turn(self, ending: int) -> bool:
        now_s = time.monotonic()
        for one in self._watched:
            if one.process is None and now_s >= one.begin_at_s:
                if (output := one.begin(now_s)) is not None:
                    self._selector.register(output, selectors.EVENT_READ, one)
            elif one.process is not None and now_s > one.deadline_s:
                self._lost(one, "tool_timeout", "it does not answer")
        for key, _ in self._selector.select(self._wait_s(now_s)):
            if key.fd == ending:
                if not os.read(ending, 4096):
                    return False
                continue
            self._read(key.data)
        return True

    def _wait_s(self, now_s: float) -> float:
        due = [one.begin_at_s if one.process is None else one.deadline_s for one in self._watched]
        return max(0.01, min(due, default=now_s + 60.0) - now_s)

    def _read(self, one: _Watched) -> None:
        assert one.process is not None
        assert one.process.stdout is not None
        data = os.read(one.process.stdout.fileno(), 1 << 16)
        if not data:
            self._lost(one, "tool_failed", f"it ended ({_exit_code(one.process)})")
            return
        for line in one.lines(data, time.monotonic()):
            self._write(line + b"\n")

    def _lost(self, one: _Watched, code: str, text: str) -> None:
        """End a provider's process, and say so: its devices are neither well nor ill for that."""
        if one.process is not None and one.process.stdout is not None:
            self._selector.unregister(one.process.stdout)
        one.end()
        finding = Finding(code=code, text=short(f"the provider of {one.vendor} devices: {text}"))
        self._write(encoded(DeviceSample(one.vendor, "silent", Reading(findings=(finding,)))))


def providers(folder: Path | None) -> list[DeviceProvider]:
    """Return the providers of this machine, or that of the simulated devices in a folder."""
    if folder is not None:
        from penstock.devices.simulated_files import SimulatedFiles

        return [SimulatedFiles(folder)]
    from penstock.devices.installed import installed_providers

    return list(installed_providers())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the process above the providers, or with `--vendor` that of one of them."""
    parser = argparse.ArgumentParser(prog="penstock.devices.process")
    parser.add_argument("--vendor", help="be the process of this provider")
    parser.add_argument("--folder", type=Path, help="simulated devices, as files")
    parser.add_argument("--once", action="store_true", help="write an inventory of each vendor, and end")
    given = parser.parse_args(arguments)
    sources = Machine()
    here = [one for one in providers(given.folder) if given.vendor in (None, one.vendor)]
    if given.vendor is not None:
        if not here:
            return 2
        if given.once:
            _write(encoded(DeviceSample(given.vendor, "inventory", here[0].inventory(sources))))
            return 0
        every_s = float((given.folder and sources.read(f"{given.folder}/every")) or SAMPLE_EVERY_S)
        provide(here[0], sources, _write, partial(_pause, every_s))
        return 0
    folder = ["--folder", str(given.folder)] if given.folder else []
    words = {
        one.vendor: starts.python("penstock.devices.process", "--vendor", one.vendor, *folder)
        for one in here
        if one.is_present(sources)
    }
    Supervisor(words, _write).run(sys.stdin.fileno())
    return 0


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _pause(every_s: float) -> bool:
    """Wait for the next sample; return False when the input has reached its end."""
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        return not selector.select(every_s)


if __name__ == "__main__":
    sys.exit(main())
