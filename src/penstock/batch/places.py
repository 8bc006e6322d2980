"""A place of a batch job: starts the tasks of its steps here, and passes on what they read, write, and how they end."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.batch import frames
from penstock.batch.frames import Address, Channel

PIECE_BYTES = 65_536
TASKS_MAX = 4_096
"""Of one step at one place."""
VISIBLE = re.compile(r"[A-Z]+_VISIBLE_[A-Z]+|GPU_DEVICE_ORDINAL|PENSTOCK_DEVICES|PENSTOCK_DEVICE_UUIDS")
"""Variables that list the devices of a replica."""


class Place:
    """Listens for steps until the process ends."""

    def __init__(self, folder: Path, number: int, host: str) -> None:
        self._listener, self.address = frames.listening(host)
        self._living: set[subprocess.Popen[bytes]] = set()
        self._changing = threading.Lock()
        frames.write_address(folder, number, self.address)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection, self.address), daemon=True).start()

    def _serve(self, connection: socket.socket, address: Address) -> None:
        channel = Channel(connection)
        connection.settimeout(frames.PLACE_S)
        with contextlib.suppress(OSError):
            if frames.is_right(address.token, channel.receive()):
                connection.settimeout(None)
                self._answer(channel)
        channel.close()

    def _answer(self, channel: Channel) -> None:
        frame = channel.receive()
        if frame is None:
            return
        kind, number, data = frame
        if kind == frames.SIGNAL:
            self.signal(number)
        elif kind == frames.WATCH:
            channel.receive()  # the connection ends with the process of one of the two
        elif kind == frames.START:
            self._step(channel, json.loads(data))

    def signal(self, number: int) -> None:
        """Send a signal to all tasks here."""
        with self._changing:
            for task in self._living:
                with contextlib.suppress(ProcessLookupError):
                    task.send_signal(number)

    def _step(self, channel: Channel, order: Mapping[str, Any]) -> None:
        """Run the tasks of one step until all have ended or `srun` has gone."""
        tasks: dict[int, subprocess.Popen[bytes]] = {}
        watchers = []
        for local, task in enumerate(order["tasks"][:TASKS_MAX]):
            number = int(task["number"])
            try:
                tasks[number] = self._begin(order, task, local)
            except OSError as error:
                text = f"{task['words'][0]}: {error.strerror}"
                channel.send(frames.FAULT, number, text.encode())
                continue
            watchers.append(threading.Thread(target=self._watch, args=(channel, number, tasks[number]), daemon=True))
        for watcher in watchers:
            watcher.start()
        threading.Thread(target=self._pass_on, args=(channel, tasks), daemon=True).start()
        for watcher in watchers:
            watcher.join()
        with contextlib.suppress(OSError):
            channel.send(frames.WATCH)

    def _begin(self, order: Mapping[str, Any], task: Mapping[str, Any], local: int) -> "subprocess.Popen[bytes]":
        environment = {**order["environment"], **task["environment"]}
        mine = {name: value for name, value in os.environ.items() if VISIBLE.fullmatch(name)}
        environment |= _part(mine, local, int(order["devices_per_task"])) if order["devices_per_task"] else mine
        started = subprocess.Popen(  # noqa: S603 - the words of the user's own step
            task["words"],
            stdin=subprocess.PIPE if order["input"] else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=order["folder"],
            env=environment,
            umask=int(order["umask"]),
        )
        with self._changing:
            self._living.add(started)
        return started

    def _watch(self, channel: Channel, number: int, task: "subprocess.Popen[bytes]") -> None:
        assert task.stdout is not None, "it is a pipe"
        assert task.stderr is not None, "it is a pipe"
        errors = threading.Thread(target=_copy, args=(channel, frames.ERROR, number, task.stderr), daemon=True)
        errors.start()
        _copy(channel, frames.OUTPUT, number, task.stdout)
        errors.join()
        status = task.wait()
        if task.stdin is not None:
            with contextlib.suppress(OSError):
                task.stdin.close()
        with self._changing:
            self._living.discard(task)
        with contextlib.suppress(OSError):
            channel.send(frames.ENDED, number, str(status).encode())

    def _pass_on(self, channel: Channel, tasks: Mapping[int, "subprocess.Popen[bytes]"]) -> None:
        """Pass on what comes for the tasks; end them when `srun` has gone."""
        while (frame := channel.receive()) is not None:
            kind, number, data = frame
            for task in tasks.values():
                with contextlib.suppress(OSError, ValueError):
                    if kind == frames.SIGNAL:
                        task.send_signal(number)
                    elif kind == frames.INPUT and task.stdin is not None:
                        if data:
                            task.stdin.write(data)
                            task.stdin.flush()
                        else:
                            task.stdin.close()
        for task in tasks.values():
            with contextlib.suppress(OSError):
                task.send_signal(signal.SIGKILL)


def _copy(channel: Channel, kind: bytes, number: int, source: Any) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(source.fileno(), PIECE_BYTES):
            channel.send(kind, number, data)
    source.close()


def _part(visible: Mapping[str, str], local: int, each: int) -> dict[str, str]:
    """Return the lists of devices cut to those of one task."""
    found = {}
    for name, value in visible.items():
        items = value.split(",") if value else []
        found[name] = ",".join(items[local * each : (local + 1) * each])
    return found
