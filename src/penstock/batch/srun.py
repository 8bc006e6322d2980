"""`srun` inside a batch job: starts the tasks of a step at the job's places, and ends with the highest exit code."""

import contextlib
import json
import os
import shlex
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from penstock.batch import FOLDER_VARIABLE, frames
from penstock.batch.frames import Channel
from penstock.batch.shims import program
from penstock.slurm.arrays import read_array
from penstock.slurm.options import STEP_OPTIONS, Given, Unknown, option_of, read_words
from penstock.slurm.patterns import file_name, symbols
from penstock.slurm.variables import Step, task_variables

PIECE_BYTES = 65_536
MULTI_MAX_BYTES = 2**20
TASKS_MAX = 100_000


def main() -> int:
    """Run one step; outside of a batch job become the command that begins one. Returns: the highest exit code."""
    if FOLDER_VARIABLE not in os.environ:
        words = program("penstock.cli.as_slurm", "srun", *sys.argv[1:])
        os.execv(words[0], words)  # noqa: S606 - our own program
    try:
        given, words = read_words(sys.argv[1:], "srun", STEP_OPTIONS)
        return _Srun(given, words).run()
    except (Unknown, OSError) as error:
        sys.stderr.write(f"srun: error: {error}\n")
        return 1


class Sizes(NamedTuple):
    places: tuple[int, ...]
    tasks: tuple[int, ...]


def sizes_of(nodes: int, tasks: int, per_node: int, relative: int, job: Sequence[int], *, asked: bool) -> Sizes:
    """Return the places of a step, and how many tasks each has.

    Args:
        nodes, tasks, per_node: as asked for; 0: not.
        relative: the first of the job's places that it may use.
        job: tasks of each of the job's places.
        asked: whether the job itself asked for tasks.
    Raises: Unknown where the job has too few places.
    """
    there = len(job) - relative
    if per_node and not tasks:
        tasks = per_node * (nodes or there)
    if not tasks and not nodes and not relative and asked:
        return Sizes(tuple(range(len(job))), tuple(job))
    tasks = tasks or nodes or there
    wanted = nodes or (-(-tasks // per_node) if per_node else min(tasks, there))
    if not 0 < wanted <= there:
        raise Unknown(f"the step needs {wanted} nodes, and the job has {max(0, there)} for it")
    wanted = min(wanted, tasks)
    own = tuple(job[relative : relative + wanted])
    if sum(own) != tasks or wanted != there:
        share, more = divmod(tasks, wanted)
        own = tuple(share + (number < more) for number in range(wanted))
    return Sizes(tuple(range(relative, relative + wanted)), own)


class _Srun:
    def __init__(self, given: Sequence[Given], words: Sequence[str]) -> None:
        self._options = {one.name: one.value for one in given}
        self._folder = Path(os.environ[FOLDER_VARIABLE])
        for one in given:
            option = option_of(one.name, STEP_OPTIONS)
            if option.refused:
                raise Unknown(f"--{one.name} is not supported: {option.refused}")
            if option.left_out and self._is_first(one.name):
                sys.stderr.write(f"srun: --{one.name} is left out: {option.left_out}\n")
        if not words or ":" in words:
            raise Unknown("no program is named" if not words else "a job has one component here, without ':'")
        self._job = [int(word) for word in os.environ.get("PENSTOCK_BATCH_TASKS", "1").split(",")]
        self._nodes = os.environ.get("PENSTOCK_NODES", socket.gethostname()).split(",")
        sizes = sizes_of(
            self._number("nodes"),
            self._number("ntasks"),
            self._number("ntasks-per-node"),
            self._number("relative", low=0),
            self._job,
            asked="PENSTOCK_BATCH_ASKED" in os.environ,
        )
        self._words = self._programs(list(words), sum(sizes.tasks))
        per_task = self._number("cpus-per-task") or int(os.environ.get("SRUN_CPUS_PER_TASK", "0") or 0)
        host = os.environ.get("MASTER_ADDR", "127.0.0.1")
        self._step = Step(self._next_step(), sizes.places, sizes.tasks, per_task, host)
        self._open_input()
        self._codes: dict[int, int] = {}
        self._files: dict[str, BinaryIO] = {}
        self._lines: dict[tuple[int, bytes], bytes] = {}
        self._writing = threading.Lock()

    def _open_input(self) -> None:
        """Let standard input be the file of --input. Raises: OSError, Unknown."""
        given = self._options.get("input")
        if given is None:
            return
        if given.isdecimal():
            raise Unknown(f"--input={given}: all tasks read the same here")
        descriptor = os.open(os.devnull if given == "none" else given, os.O_RDONLY)
        os.dup2(descriptor, 0)
        os.close(descriptor)

    def _number(self, name: str, *, low: int = 1) -> int:
        value = self._options.get(name)
        if value is None:
            return 0
        first = value.partition("-")[0] if name == "nodes" else value
        if not first.isdecimal() or not low <= int(first) <= TASKS_MAX:
            raise Unknown(f"--{name}={value}: expected a whole number from {low}")
        return int(first)

    def _is_first(self, option: str) -> bool:
        """Return whether no step of the job before has had this option: it is named once."""
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self._folder / f"named-{option}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            return True
        return False

    def _next_step(self) -> int:
        """Return the number of this step: the first that none before it has taken."""
        for number in range(1_000_000):
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self._folder / f"step-{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                return number
        raise Unknown("the job has had too many steps")

    def _programs(self, words: list[str], tasks: int) -> list[list[str]]:
        """Return the words of each task. Raises: Unknown for a file of --multi-prog that leaves a task without one."""
        if "multi-prog" not in self._options:
            return [words] * tasks
        found: dict[int, list[str]] = {}
        with open(words[0], "rb") as file:
            text = file.read(MULTI_MAX_BYTES).decode(errors="replace")
        for line in text.splitlines():
            parts = [] if line.lstrip().startswith("#") else shlex.split(line, posix=False)
            if len(parts) < 2:
                continue
            numbers = range(tasks) if parts[0] == "*" else _numbers(parts[0], line)
            for offset, number in enumerate(numbers):
                found.setdefault(number, [_filled(word, number, offset) for word in parts[1:]])
        if missing := [number for number in range(tasks) if number not in found]:
            raise Unknown(f"{words[0]} names no program for task {missing[0]}")
        return [found[number] for number in range(tasks)]

    def run(self) -> int:
        channels = []
        for node_id, place in enumerate(self._step.places):
            if self._step.tasks[node_id]:
                channel = frames.connected(self._folder, place)
                channel.send(frames.START, 0, json.dumps(self._order(node_id)).encode())
                channels.append((node_id, channel))
        readers = [threading.Thread(target=self._read, args=(node_id, one)) for node_id, one in channels]
        for reader in readers:
            reader.start()
        if self._reads_input:
            threading.Thread(target=self._feed, args=([one for _, one in channels],), daemon=True).start()
        for reader in readers:
            reader.join()
        for (_, kind), rest in self._lines.items():
            self._write(kind, rest)
        for file in self._files.values():
            file.close()
        missing = [number for number in range(self._step.total) if number not in self._codes]
        if missing:
            sys.stderr.write(f"srun: error: task {missing[0]}: its place was lost\n")
        return max([*self._codes.values(), *([1] if missing else [])])

    @property
    def _reads_input(self) -> bool:
        with contextlib.suppress(OSError):
            return not os.path.samestat(os.fstat(0), os.stat(os.devnull))
        return False

    def _environment(self) -> dict[str, str]:
        own = dict(os.environ)
        words = (self._options.get("export") or own.get("SLURM_EXPORT_ENV", "ALL")).split(",")
        if "export" in self._options:
            own["SLURM_EXPORT_ENV"] = self._options["export"]
        if words[0].upper() != "ALL":
            named = {word for word in words if "=" not in word}
            ours = ("SLURM_", "PENSTOCK_")
            own = {
                name: value for name, value in own.items() if name in named or name.startswith(ours) or name == "PATH"
            }
        return own | {name: value for name, equals, value in (word.partition("=") for word in words) if equals}

    def _order(self, node_id: int) -> dict[str, object]:
        """Return what one place is to start."""
        first = sum(self._step.tasks[:node_id])
        umask = os.umask(0)
        os.umask(umask)
        each = self._options.get("gpus-per-task", os.environ.get("SLURM_GPUS_PER_TASK", "0")).rpartition(":")[2]
        return {
            "environment": self._environment(),
            "folder": os.path.abspath(self._options.get("chdir", os.getcwd())),
            "input": self._reads_input,
            "umask": umask,
            "devices_per_task": int(each) if each.isdecimal() else 0,
            "tasks": [
                {
                    "number": first + local,
                    "words": self._words[first + local],
                    "environment": task_variables(self._step, self._nodes, node_id, local),
                }
                for local in range(self._step.tasks[node_id])
            ],
        }

    def _read(self, node_id: int, channel: Channel) -> None:
        while (frame := channel.receive()) is not None:
            kind, number, data = frame
            if kind == frames.WATCH:
                break
            if kind in (frames.OUTPUT, frames.ERROR):
                self._take(kind, number, node_id, data)
            elif kind == frames.FAULT:
                self._codes[number] = 2
                sys.stderr.write(f"srun: error: task {number}: {data.decode(errors='replace')}\n")
            elif kind == frames.ENDED:
                self._ended(number, node_id, int(data))
        channel.close()

    def _ended(self, number: int, node_id: int, status: int) -> None:
        self._codes[number] = status if status >= 0 else 128 - status
        node = self._nodes[self._step.places[node_id]]
        if status > 0:
            sys.stderr.write(f"srun: error: {node}: task {number}: Exited with exit code {status}\n")
        elif status < 0:
            sys.stderr.write(f"srun: error: {node}: task {number}: Killed by signal {-status}\n")

    def _take(self, kind: bytes, number: int, node_id: int, data: bytes) -> None:
        name = self._options.get("output") if kind == frames.OUTPUT else self._options.get("error")
        name = name or (self._options.get("output") if kind == frames.ERROR else None)
        with self._writing:
            if name:
                self._file(name, number, node_id).write(data)
            elif "label" in self._options:
                place = (number, kind)
                *lines, self._lines[place] = (self._lines.get(place, b"") + data).split(b"\n")
                self._write(kind, b"".join(b"%d: %s\n" % (number, line) for line in lines))
            else:
                self._write(kind, data)

    def _write(self, kind: bytes, data: bytes) -> None:
        out = 1 if kind == frames.OUTPUT else 2
        while data:
            data = data[os.write(out, data) :]

    def _file(self, pattern: str, number: int, node_id: int) -> BinaryIO:
        """Return the file of a task; those whose names are equal share one."""
        job, array = int(os.environ["SLURM_JOB_ID"]), None
        if "SLURM_ARRAY_JOB_ID" in os.environ:
            array = (int(os.environ["SLURM_ARRAY_JOB_ID"]), int(os.environ["SLURM_ARRAY_TASK_ID"]))
        values = symbols(
            job=job,
            name=self._options.get("job-name") or os.environ.get("SLURM_JOB_NAME", ""),
            user=os.environ.get("SLURM_JOB_USER", ""),
            node=self._nodes[self._step.places[node_id]],
            node_id=node_id,
            task=number,
            step=str(self._step.number),
            array=array,
        )
        name = file_name(pattern, values)
        if name not in self._files:
            append = self._options.get("open-mode", os.environ.get("SLURM_OPEN_MODE", "")) in ("a", "append")
            self._files[name] = open(name, "ab" if append else "wb", buffering=0)  # noqa: SIM115 - closed at the end
        return self._files[name]

    def _feed(self, channels: Sequence[Channel]) -> None:
        """Pass standard input on to all tasks."""
        with contextlib.suppress(OSError):
            while data := os.read(0, PIECE_BYTES):
                for channel in channels:
                    channel.send(frames.INPUT, 0, data)
            for channel in channels:
                channel.send(frames.INPUT, 0, b"")


def _filled(word: str, number: int, offset: int) -> str:
    """Return a word of --multi-prog for one task: `%t` is its number, `%o` its place; not so in a quoted word."""
    if word[:1] in ("'", '"'):
        return "".join(shlex.split(word))
    return word.replace("%t", str(number)).replace("%o", str(offset))


def _numbers(text: str, line: str) -> Sequence[int]:
    try:
        return read_array(text).indexes
    except ValueError as error:
        raise Unknown(f"'{line}' begins with no task numbers: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
