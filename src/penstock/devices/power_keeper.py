"""The agent's end of limits of power: what the limit is, and the process that sets it by vendors' tools.

Theory. The limit lies in a file of the node's folder before any device is changed, and goes when all devices have their
own limit again: an agent that starts anew knows what it has to keep, or to take back. The process
(`penstock.devices.power_limits`) reads what each device has and changes what differs; so it may be ended at any moment,
and is run again after a while, for a driver that was loaded anew has forgotten what was set.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from penstock import starts
from penstock.core.model.resources import Device
from penstock.devices.power_limits import LimitedDevice, NotLimited
from penstock.privatefiles import write_whole

FILE = "power-limit"
TIME_LIMIT_MS = 120_000
AGAIN_MS = 600_000
"""After all devices were as they should be; sooner where some were not."""
TRY_AGAIN_MS = 60_000
NOTES_MAX = 8
_answers = msgspec.json.Decoder(list[NotLimited])


class PowerKeeper:
    """Keeps the devices of a node to a limit of power.

    Args:
        folder: of the node.
        arguments: of the processes that ask providers: where simulated devices are.
    """

    def __init__(self, devices: Iterable[Device], folder: Path, arguments: Sequence[str]) -> None:
        self._devices = [LimitedDevice(one.index, one.vendor, one.uuid) for one in devices]
        self._file, self._arguments = folder / FILE, arguments
        self.limit_mw = _read(self._file)
        """As it was ordered last; 0: none."""
        self._due_ms: int | None = 0 if self.limit_mw else None
        """When the devices are looked at; None: not before another limit comes."""
        self._process: subprocess.Popen[bytes] | None = None
        self._setting_mw = 0
        self._until_ms = 0
        self.notes: tuple[str, ...] = ()
        """For people: which devices are not kept to the limit, and why."""

    @property
    def working(self) -> bool:
        """Whether a process sets limits right now."""
        return self._process is not None

    def limit(self, limit_mw: int) -> None:
        """Keep the devices to this from now on; 0: give them their own limits again."""
        if limit_mw == self.limit_mw:
            return
        if limit_mw:
            with contextlib.suppress(OSError):  # a full disk costs what the next agent would know, no more
                write_whole(self._file, str(limit_mw).encode())
        self.limit_mw, self._due_ms = limit_mw, 0

    def turn(self, now_ms: int) -> None:
        """Begin what is due, or take its result, without waiting."""
        if self._process is None:
            if self._due_ms is not None and now_ms >= self._due_ms:
                self._begin(now_ms)
        elif self._process.poll() is not None:
            self._ended(self._process, now_ms)
        elif now_ms >= self._until_ms:
            self.end()
            self._said(["the vendor's tool does not answer"], now_ms)

    def end(self) -> None:
        """End the process, without waiting. What was set stays set."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            assert process.stdout is not None
            process.stdout.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2)

    def _begin(self, now_ms: int) -> None:
        self._setting_mw, self._due_ms = self.limit_mw, None
        words = starts.python("penstock.devices.power_limits", "--limit-mw", str(self.limit_mw), *self._arguments)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this program itself
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd=starts.HOME,
                env=starts.environment(),
            )
            assert self._process.stdin is not None
            with contextlib.suppress(OSError), self._process.stdin as pipe:
                pipe.write(msgspec.json.encode(self._devices))
        except OSError as error:
            self._said([str(error)], now_ms)
        self._until_ms = now_ms + TIME_LIMIT_MS

    def _ended(self, process: "subprocess.Popen[bytes]", now_ms: int) -> None:
        assert process.stdout is not None
        with process.stdout as pipe:
            printed = pipe.read()
        self._process = None
        try:
            failed = [f"device {one.index}: {one.why}" for one in _answers.decode(printed)]
        except msgspec.DecodeError:
            failed = [f"the process that sets it has ended ({process.returncode})"]
        self._said(failed, now_ms)

    def _said(self, failed: Sequence[str], now_ms: int) -> None:
        what = f"limit of power {self._setting_mw / 1000:g} W" if self._setting_mw else "its own limit of power"
        self.notes = tuple(f"{what} is not set: {why}" for why in failed[:NOTES_MAX])
        if self._due_ms is None and (self.limit_mw or failed):
            self._due_ms = now_ms + (TRY_AGAIN_MS if failed else AGAIN_MS)
        if not failed and not self._setting_mw and not self.limit_mw:
            with contextlib.suppress(OSError):
                self._file.unlink(missing_ok=True)


def _read(file: Path) -> int:
    """Return the limit that a former agent had to keep (mW); 0: none."""
    try:
        return max(0, int(file.read_text(encoding="ascii")))
    except (OSError, ValueError):
        return 0
