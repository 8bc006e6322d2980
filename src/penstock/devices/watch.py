"""The agent's end of the watch over devices: starts the process that asks providers, and reads it without waiting."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence

import msgspec

from penstock import starts
from penstock.core.model.resources import Device
from penstock.devices.condition import Condition, Host
from penstock.devices.samples import LINE_MAX, DeviceSample, decode

PAUSE_FIRST_MS, PAUSE_MOST_MS = 1_000, 60_000
CHUNK_BYTES, CHUNKS_MAX = 1 << 16, 32
"""Read in one turn of the agent: the rest waits for the next."""


class DeviceWatch:
    """Watches the devices of one node.

    Args:
        devices: as the node offers them.
        arguments: of `penstock.devices.process`.
        host: answers about processes.
    """

    def __init__(self, devices: Sequence[Device], arguments: Sequence[str], host: Host) -> None:
        self.condition = Condition(devices)
        self._words = starts.python("penstock.devices.process", *arguments)
        self._host = host
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._begin_at_ms = 0
        self._pause_ms = PAUSE_FIRST_MS
        self.samples = 0
        """Taken so far."""

    @property
    def pid(self) -> int:
        """The process above the providers; 0 while it does not run."""
        return self._process.pid if self._process is not None else 0

    def turn(
        self,
        now_ms: int,
        opened: Callable[[int], None],
        closed: Callable[[int], None],
        taken_in: Callable[[DeviceSample], None] = lambda _: None,
    ) -> bool:
        """Take what has come, without waiting; start the process where it does not run. Return whether any came.

        Args:
            opened: takes the descriptor to wait for, once the process has begun.
            closed: takes it before it is closed.
            taken_in: takes each sample that the condition has taken.
        """
        if self._process is None:
            if now_ms >= self._begin_at_ms:
                self._begin(now_ms, opened)
            return False
        taken = False
        for sample in self._read(closed):
            self.condition.take(sample, now_ms, self._host)
            taken_in(sample)
            self._pause_ms, taken = PAUSE_FIRST_MS, True
            self.samples += 1
        if not self.pid:
            self._begin_at_ms = now_ms + self._pause_ms
            self._pause_ms = min(PAUSE_MOST_MS, 2 * self._pause_ms)
        return taken

    def _begin(self, now_ms: int, opened: Callable[[int], None]) -> None:
        self._rest = b""
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this program itself
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd=starts.HOME,
                env=starts.environment(),
            )
        except OSError:
            self._begin_at_ms = now_ms + self._pause_ms
            self._pause_ms = min(PAUSE_MOST_MS, 2 * self._pause_ms)
            return
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        opened(self._process.stdout.fileno())

    def _read(self, closed: Callable[[int], None]) -> Iterator[DeviceSample]:
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        for _ in range(CHUNKS_MAX):
            try:
                data = os.read(descriptor, CHUNK_BYTES)
            except BlockingIOError:
                return
            if not data:
                self.end(closed)
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                with contextlib.suppress(msgspec.DecodeError):
                    yield decode(line)
            if len(self._rest) > LINE_MAX:
                self.end(closed)
                return

    def end(self, closed: Callable[[int], None]) -> None:
        """End the process, and by the end of its input those of the providers."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdout is not None
        closed(process.stdout.fileno())
        for end in (process.stdin, process.stdout):
            if end is not None:
                end.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
