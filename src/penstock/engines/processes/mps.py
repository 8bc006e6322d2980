"""Control daemons of NVIDIA's MPS on one node: one for each device that is given out in fractions through it.

Theory. A daemon begins before the first fraction on its device and ends after the last. Its pipe folder is the record
of it: the daemon writes its number there and refuses to be a second one, and every process of MPS has that folder in
its environment. So whatever moment an agent is killed in, the next one finds the daemon, or that there is none. Nothing
here waits: commands are children that are looked at in each turn of the agent, and killed when they take too long.

A daemon that ends while fractions hold its device is a fault of the device: what starts there now would have no limit.
Servers of it are left to its clients until these have gone; then nothing of it stays.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from penstock import starts
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.nodes import DeviceFault
from penstock.core.model.resources import Device, DeviceAsk
from penstock.devices.mps import (
    CONTROL,
    PID_FILE,
    PIPES,
    PIPES_MAX_CHARS,
    SERVER,
    client_variables,
    daemon_variables,
    is_for,
)
from penstock.engines.processes import procfs
from penstock.engines.processes.procfs import Process
from penstock.privatefiles import PASSED, passed_by_accounts

START_MAX_MS = 20_000
"""For the command that starts a daemon, and for the daemon to write its number."""
QUIT_S = 5
"""A daemon that is asked to quit ends its servers after this long."""
QUIT_MAX_MS = 10_000
"""A daemon that has not quit by then is killed."""
FAULT_KEPT_MS = 60_000
"""For how long a fault is reported at least: the server keeps the device closed for longer."""
TEXT_MAX = 300
FAULT = "mps_daemon"
"""Code of a device whose daemon ended, or could not be started."""

Phase = Literal["off", "starting", "on", "broken", "quitting", "killing"]
"""`broken`: the daemon has ended, and replicas still hold its device."""


class Daemon(msgspec.Struct):
    """The daemon of one device."""

    device: Device
    folder: Path
    phase: Phase = "off"
    since_ms: int = 0
    command: subprocess.Popen[bytes] | None = None
    process: Process | None = None
    holders: set[ReplicaKey] = msgspec.field(default_factory=set)
    broken_for: set[ReplicaKey] = msgspec.field(default_factory=set)
    """Replicas that held the device when the daemon ended."""
    fault: DeviceFault | None = None
    fault_until_ms: int = 0
    for_all_users: bool = True
    """Whether its server takes clients of all users, which older drivers do not know."""

    @property
    def pipes(self) -> Path:
        return self.folder / "pipes"


class MpsDaemons:
    """The daemons of one node.

    Args:
        folder: of all daemons of the node; its path is short, as sockets lie in it.
        devices: of the node, by index.
        now_ms: monotonic, as everywhere here.
    """

    def __init__(self, folder: Path, devices: Mapping[int, Device], now_ms: int) -> None:
        self._folder = folder
        self._daemons = {index: Daemon(device, folder / str(index)) for index, device in devices.items()}
        for daemon in self._daemons.values():
            if daemon.pipes.is_dir():
                self._find(daemon, now_ms)

    def _find(self, daemon: Daemon, now_ms: int) -> None:
        """Take over what a former agent left: its daemon, or what is left of one."""
        daemon.process = _control_of(daemon.pipes)
        _enter(daemon, "on", now_ms)  # the first turn sees whether it is

    # Replicas.

    def hold(self, key: ReplicaKey, index: int) -> bool:
        """Keep the daemon of a device for a replica, until `release`; return whether the device is one for MPS."""
        daemon = self._daemons[index]
        if not is_for(daemon.device):
            return False
        daemon.holders.add(key)
        return True

    def release(self, key: ReplicaKey) -> str:
        """Drop what a replica held; return why its program may have failed without a fault of its own, or ''."""
        broken = False
        for daemon in self._daemons.values():
            broken = broken or key in daemon.broken_for
            daemon.holders.discard(key)
            daemon.broken_for.discard(key)
        return "the MPS daemon of its device ended" if broken else ""

    def variables(self, index: int, ask: DeviceAsk) -> dict[str, str]:
        """Return the variables of a program that gets a fraction of a device."""
        daemon = self._daemons[index]
        return client_variables(ask, daemon.device, daemon.pipes)

    def ready(self, index: int) -> bool:
        """Return whether the daemon of a device runs."""
        return self._daemons[index].phase == "on"

    def problem(self, index: int) -> str:
        """Return why no fraction of a device can start at present, or ''."""
        fault = self._daemons[index].fault
        return fault.text if fault is not None else ""

    # From time.

    def turn(self, now_ms: int) -> None:
        """Begin, end and look after daemons; never waits."""
        for daemon in self._daemons.values():
            self._step(daemon, now_ms)
            if daemon.fault is not None and now_ms >= daemon.fault_until_ms and daemon.phase != "broken":
                daemon.fault = None

    def faults(self) -> tuple[DeviceFault, ...]:
        """Return the devices whose daemon failed, ascending."""
        return tuple(one.fault for _, one in sorted(self._daemons.items()) if one.fault is not None)

    @property
    def idle(self) -> bool:
        """Return whether no daemon is left, nor anything of one."""
        return all(one.phase == "off" for one in self._daemons.values())

    def end(self) -> None:
        """End what no replica holds, at once. The rest is the next agent's."""
        for daemon in self._daemons.values():
            if not daemon.holders and daemon.phase != "off":
                _stop_command(daemon)
                _kill_all(daemon.pipes)
                self._clear(daemon)

    def stop_commands(self) -> None:
        """Kill the commands under way; what they began is found by the next agent."""
        for daemon in self._daemons.values():
            _stop_command(daemon)

    def _step(self, daemon: Daemon, now_ms: int) -> None:
        match daemon.phase:
            case "off":
                if daemon.holders and not self.problem(daemon.device.index):
                    self._start(daemon, now_ms)
            case "starting":
                self._look_at_start(daemon, now_ms)
            case "on":
                if daemon.process is None or not procfs.alive(daemon.process.pid, daemon.process.ticks):
                    self._break(daemon, now_ms)
                elif not daemon.holders:
                    self._quit(daemon, now_ms)
            case "broken":
                if not daemon.holders:
                    _enter(daemon, "killing", now_ms)
            case "quitting":
                over = now_ms - daemon.since_ms > QUIT_MAX_MS
                if over or (daemon.command is not None and daemon.command.poll() is not None):
                    _stop_command(daemon)
                    _enter(daemon, "killing", now_ms)
            case "killing":
                if _kill_all(daemon.pipes):
                    self._clear(daemon)

    def _start(self, daemon: Daemon, now_ms: int) -> None:
        program, index = starts.tool(CONTROL), daemon.device.index
        if program is None:
            self._fail(daemon, now_ms, f"{CONTROL} is not installed")
            return
        if len(str(daemon.pipes)) > PIPES_MAX_CHARS:
            text = f"{daemon.pipes} is too long a path for the sockets of MPS: choose a shorter data folder"
            self._fail(daemon, now_ms, text)
            return
        logs = daemon.folder / "logs"
        self._folder.mkdir(passed_by_accounts(), parents=True, exist_ok=True)
        for folder, mode in ((daemon.folder, passed_by_accounts()), (logs, 0o700), (daemon.pipes, PASSED)):
            folder.mkdir(mode, exist_ok=True)
            folder.chmod(mode)
        words = [program, "-d"]
        if daemon.for_all_users and os.geteuid() == 0:
            words.append("-multiuser-server")
        variables = daemon_variables(daemon.device, daemon.pipes, logs)
        try:
            daemon.command = _run(words, variables, daemon.folder / "start.log")
        except OSError as error:
            self._fail(daemon, now_ms, f"the MPS daemon of device {index} could not be started: {error}")
            return
        _enter(daemon, "starting", now_ms)

    def _look_at_start(self, daemon: Daemon, now_ms: int) -> None:
        assert daemon.command is not None
        code = daemon.command.poll()
        if code is not None:
            daemon.process = _control_of(daemon.pipes)
            if daemon.process is not None:  # a daemon of a killed agent may be in the way of ours: it is as good
                _stop_command(daemon)
                _enter(daemon, "on", now_ms)
                return
        if code and daemon.for_all_users and os.geteuid() == 0:
            daemon.for_all_users = False
            _enter(daemon, "killing", now_ms)
        elif code or now_ms - daemon.since_ms > START_MAX_MS:
            said = _text_of(daemon.folder / "start.log") or "no answer"
            _stop_command(daemon)
            self._fail(daemon, now_ms, f"the MPS daemon of device {daemon.device.index} did not start: {said}")
            _enter(daemon, "killing", now_ms)

    def _break(self, daemon: Daemon, now_ms: int) -> None:
        daemon.process = None
        _enter(daemon, "broken", now_ms)
        if daemon.holders:
            held = len(daemon.holders)
            daemon.broken_for |= daemon.holders
            text = f"the MPS daemon of device {daemon.device.index} ended while {held} fraction{'s' * (held != 1)} ran"
            self._fail(daemon, now_ms, text)

    def _fail(self, daemon: Daemon, now_ms: int, text: str) -> None:
        """Report the device as being at fault."""
        daemon.fault = DeviceFault(daemon.device.index, FAULT, text[:TEXT_MAX])
        daemon.fault_until_ms = now_ms + FAULT_KEPT_MS

    def _quit(self, daemon: Daemon, now_ms: int) -> None:
        _enter(daemon, "quitting", now_ms)
        program = starts.tool(CONTROL)
        if program is None:
            _enter(daemon, "killing", now_ms)
            return
        with contextlib.suppress(OSError):
            variables = daemon_variables(daemon.device, daemon.pipes, daemon.folder / "logs")
            daemon.command = _run([program], variables, daemon.folder / "quit.log", f"quit -t {QUIT_S}\n".encode())

    def _clear(self, daemon: Daemon) -> None:
        """Forget a daemon of which no process is left."""
        shutil.rmtree(daemon.pipes, ignore_errors=True)
        daemon.process, daemon.phase = None, "off"


def _enter(daemon: Daemon, phase: Phase, now_ms: int) -> None:
    daemon.phase, daemon.since_ms = phase, now_ms


def _run(words: list[str], variables: Mapping[str, str], log: Path, said: bytes = b"") -> "subprocess.Popen[bytes]":
    """Start a command of MPS with what it reads; it never waits for us, nor we for it."""
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - the driver's own program
            words,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd=starts.HOME,
            env={**starts.environment(), **variables},
        )
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.write(said)
        process.stdin.close()
    return process


def _stop_command(daemon: Daemon) -> None:
    command, daemon.command = daemon.command, None
    if command is not None and command.poll() is None:
        command.kill()
        command.wait()


def _text_of(log: Path) -> str:
    with contextlib.suppress(OSError):
        return log.read_bytes()[:TEXT_MAX].decode("utf-8", errors="replace").strip()
    return ""


def _control_of(pipes: Path) -> Process | None:
    """Return the daemon that has written its number into a pipe folder, if it runs."""
    try:
        pid = int((pipes / PID_FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return next((one for one in members(pipes) if one.pid == pid), None)


def members(pipes: Path) -> Iterator[Process]:
    """Yield the daemon and the servers of a pipe folder that run, by their names and environments."""
    names, mark = {CONTROL[:15], SERVER[:15]}, f"{PIPES}={pipes}".encode()
    for pid in procfs.all_pids():
        if procfs.name_of(pid) in names and mark in procfs.environment_of(pid):
            ticks = procfs.start_ticks(pid)
            if ticks is not None and procfs.alive(pid, ticks):
                yield Process(pid, ticks)


def _kill_all(pipes: Path) -> bool:
    """Kill what runs of a pipe folder; return whether nothing did."""
    found = list(members(pipes))
    for one in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(one.pid, signal.SIGKILL)
    return not found
