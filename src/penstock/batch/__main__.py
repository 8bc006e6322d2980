"""One place of a batch job: the first runs the script, and all of them start tasks for `srun`.

The script runs in this process's group, so that stop signals reach it as they reach us; we outlive them and end as it
ends, with its exit code or by its signal.
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from penstock.batch import FOLDER_VARIABLE, batch_folder, frames
from penstock.batch.places import VISIBLE, Place
from penstock.batch.shims import write_shims
from penstock.slurm.arrays import index_at
from penstock.slurm.patterns import file_name, symbols
from penstock.slurm.settings import END, STANDARD_OUTPUT, Settings, settings_of, unpacked
from penstock.slurm.variables import Facts, script_variables

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
OUTLIVED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
"""Signals that the script gets as well, and that do not end this process."""
OVER = "over"
"""A file that says that the script has ended."""
FOLLOW_S, FOLLOW_MOST_S = 0.2, 2.0
LOGIN_S = 20.0
KEPT = frozenset({
    "PENSTOCK_JOB_ID", "PENSTOCK_JOB_NAME", "PENSTOCK_ATTEMPT", "PENSTOCK_NODES", "PENSTOCK_CHECKPOINT_DIR",
    "PENSTOCK_CHECKPOINT_INTERVAL_S", "PENSTOCK_CHECKPOINT_SIGNAL", "PENSTOCK_GRACE_S", "PENSTOCK_REPORT_FILE",
    "PENSTOCK_DEVICE_MEMORY_BYTES", "PENSTOCK_ARRAY_ID", "PENSTOCK_ARRAY_INDEX", "MASTER_ADDR", "MASTER_PORT",
    "PENSTOCK_BATCH", "PENSTOCK_BATCH_FILE",
})  # fmt: skip
"""Variables of the replica that the script has beside those of its user."""


class Batch(NamedTuple):
    settings: Settings
    facts: Facts
    words: list[str]
    """The script as it was given, and its arguments."""
    folder: Path


def main() -> int:
    """Be one place of a job. Returns: the exit code, where no signal ended the script."""
    words = sys.argv[1:]
    end = words.index(END)
    settings = settings_of(words[:end])
    for number in OUTLIVED:
        signal.signal(number, lambda *_: None)
    rank = int(os.environ.get("RANK", "0"))
    folder = batch_folder(os.environ)
    master = os.environ.get("MASTER_ADDR") or "127.0.0.1"
    batch = Batch(settings, _facts(settings, rank), words[end + 1 :], folder)
    if rank:
        return _attend(folder, rank, master)
    if settings.no_requeue and batch.facts.attempt > 1:
        sys.stderr.write("penstock: the job was asked for with --no-requeue: its script is not run again\n")
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    return _ended_as(_run(batch, master if settings.nodes > 1 else "127.0.0.1"))


def _facts(settings: Settings, rank: int) -> Facts:
    environment = os.environ
    array = None
    if "PENSTOCK_ARRAY_ID" in environment:
        index = int(environment["PENSTOCK_ARRAY_INDEX"])
        array = (int(environment["PENSTOCK_ARRAY_ID"]), index_at(settings.array, index) if settings.array else index)
    now = int(time.time())
    devices = environment.get("PENSTOCK_DEVICES") or environment.get("CUDA_VISIBLE_DEVICES", "")
    return Facts(
        job=int(environment["PENSTOCK_JOB_ID"]),
        name=environment.get("PENSTOCK_JOB_NAME", ""),
        nodes=(environment.get("PENSTOCK_NODES") or socket.gethostname()).split(","),
        uid=os.getuid(),
        gid=os.getgid(),
        user=_user(),
        attempt=int(environment.get("PENSTOCK_ATTEMPT", "1")),
        place=rank,
        array=array,
        devices=devices,
        start=now,
        end=now + settings.time_limit if settings.time_limit else 0,
    )


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return os.environ.get("USER", str(os.getuid()))


def _attend(folder: Path, rank: int, master: str) -> int:
    """Start tasks here until the first place ends."""
    folder.mkdir(parents=True, exist_ok=True)
    Place(folder, rank, frames.own_host(master))
    try:
        first = frames.connected(folder, 0, over=folder / OVER)
        first.send(frames.WATCH)
        first.receive()
    except OSError as error:
        if not (folder / OVER).exists():
            sys.stderr.write(f"penstock: {error}\n")
            return 1
    (folder / f"place-{rank}").unlink(missing_ok=True)
    return 0


def _run(batch: Batch, host: str) -> int:
    """Run the script; return its wait status as `subprocess` says it."""
    try:
        text, exported = unpacked(os.environ)
    except ValueError as error:
        sys.stderr.write(f"penstock: {error}\n")
        return 1
    place = Place(batch.folder, 0, host)
    script = batch.folder / "slurm_script"
    script.write_text(text, encoding="utf-8", errors="surrogateescape")
    script.chmod(0o700)
    write_shims(batch.folder / "bin")
    os.umask(int(batch.settings.umask, 8) if batch.settings.umask else 0o022)
    try:
        given, out, err = _files(batch)
    except OSError as error:
        sys.stderr.write(f"penstock: {error.filename}: {error.strerror}\n")
        return 1
    environment = script_environment(batch, exported)
    try:
        process = subprocess.Popen(  # noqa: S603 - the user's own script
            ["/bin/sh", "-c", 'export SLURM_TASK_PID=$$; exec "$0" "$@"', str(script), *batch.words[1:]],
            stdin=given,
            stdout=out,
            stderr=err,
            env=environment,
            cwd=os.getcwd(),
        )
    except OSError as error:
        sys.stderr.write(f"penstock: {batch.words[0]}: {error.strerror}\n")
        return 1
    over = threading.Event()
    copies = [threading.Thread(target=_copy, args=(one, to, over)) for one, to in _copied(out, err)]
    for copy in copies:
        copy.start()
    if batch.settings.signal and batch.settings.time_limit:
        threading.Thread(target=_warn, args=(batch, place, process), daemon=True).start()
    status = process.wait()
    over.set()
    for copy in copies:
        copy.join()
    _clear(batch.folder)
    return status


def _clear(folder: Path) -> None:
    """Remove what the script needed; a place that begins only now still learns that it is over."""
    (folder / OVER).touch()
    shutil.rmtree(folder / "bin", ignore_errors=True)
    for path in (*folder.glob("step-*"), *folder.glob("named-*"), folder / "slurm_script", folder / "place-0"):
        path.unlink(missing_ok=True)


def _files(batch: Batch) -> tuple[int, int, int]:
    """Open standard input, output and error as the script's options name them. Raises: OSError."""
    settings, facts = batch.settings, batch.facts
    if settings.output == STANDARD_OUTPUT:
        return os.open(settings.input or os.devnull, os.O_RDONLY | os.O_CLOEXEC), 1, 2
    values = symbols(
        job=facts.job, name=facts.name, user=facts.user, node=socket.gethostname().split(".")[0], array=facts.array
    )
    pattern = settings.output or ("slurm-%A_%a.out" if facts.array else "slurm-%j.out")
    how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    how |= 0 if settings.append else os.O_TRUNC
    given = os.open(file_name(settings.input, values) if settings.input else os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    out = os.open(file_name(pattern, values), how, 0o666)
    same = not settings.error or file_name(settings.error, values) == file_name(pattern, values)
    return given, out, out if same else os.open(file_name(settings.error, values), how, 0o666)


def _copied(out: int, err: int) -> list[tuple[int, int]]:
    """Return the files whose new bytes also become output of the job, and to which output."""
    pairs = [(out, 1)] if out == err else [(out, 1), (err, 2)] if out != 1 else []
    return [(one, to) for one, to in pairs if os.path.isfile(f"/proc/self/fd/{one}")]


def _copy(source: int, target: int, over: threading.Event) -> None:
    """Copy what is written to a file from now on to our own output, so that `penstock logs` shows it, too."""
    with contextlib.suppress(OSError):
        at = os.fstat(source).st_size
        pause, last = FOLLOW_S, False
        reader = os.open(f"/proc/self/fd/{source}", os.O_RDONLY)
        while True:
            data = os.pread(reader, 65_536, at)
            if data:
                os.write(target, data)
                at += len(data)
                pause = FOLLOW_S
                continue
            if last:
                break
            at = min(at, os.fstat(reader).st_size)
            last = over.wait(pause)
            pause = min(FOLLOW_MOST_S, pause * 1.3)
        os.close(reader)


def _warn(batch: Batch, place: Place, process: "subprocess.Popen[bytes]") -> None:
    """Send the signal of `--signal` so long before the end of the time limit: to the script, or to all tasks."""
    word, _, before = batch.settings.signal.rpartition("@")
    number = signal.Signals[f"SIG{word.removeprefix('B:')}"]
    time.sleep(max(0.0, batch.settings.time_limit - int(before)))
    if word.startswith("B:"):
        process.send_signal(number)
        return
    place.signal(number)
    for other in range(1, batch.settings.nodes):
        with contextlib.suppress(OSError):
            channel = frames.connected(batch.folder, other, timeout_s=1.0)
            channel.send(frames.SIGNAL, number)
            channel.receive()
            channel.close()


def script_environment(batch: Batch, exported: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the script: those of its user, then what Penstock and Slurm set."""
    settings, facts = batch.settings, batch.facts
    environment = dict(exported)
    if settings.export and settings.export.split(",")[0].upper() not in ("ALL", "NIL"):
        environment = _login() | environment
    home = pwd.getpwuid(os.getuid())
    for name, value in (("HOME", home.pw_dir), ("USER", facts.user), ("LOGNAME", facts.user), ("SHELL", home.pw_shell)):
        environment.setdefault(name, value)
    environment.setdefault("TMPDIR", "/tmp")  # noqa: S108 - as Slurm sets it
    own = os.environ
    environment |= {name: own[name] for name in own if name in KEPT or VISIBLE.fullmatch(name)}
    environment |= script_variables(settings, facts, socket.gethostname())
    environment["PATH"] = f"{batch.folder / 'bin'}:{environment.get('PATH') or PATH}"
    environment[FOLDER_VARIABLE] = str(batch.folder)
    environment["PENSTOCK_BATCH_TASKS"] = ",".join(map(str, settings.place_tasks))
    if settings.ntasks or settings.ntasks_per_node:
        environment["PENSTOCK_BATCH_ASKED"] = "1"
    return environment


def _login() -> dict[str, str]:
    """Return the variables of a login shell of this user; none where it takes too long."""
    account = pwd.getpwuid(os.getuid())
    bare = {"HOME": account.pw_dir, "USER": account.pw_name, "LOGNAME": account.pw_name, "SHELL": account.pw_shell}
    try:
        said = subprocess.run(
            ["/bin/bash", "-l", "-c", "env -0"],
            check=False,
            env={**bare, "PATH": PATH},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LOGIN_S,
            cwd=account.pw_dir if os.path.isdir(account.pw_dir) else "/",
        )
    except (OSError, subprocess.TimeoutExpired):
        return bare
    pairs = (word.partition("=") for word in os.fsdecode(said.stdout).split("\0") if "=" in word)
    return {name: value for name, _, value in pairs if name not in ("_", "PWD", "SHLVL")}


def _ended_as(status: int) -> int:
    """End as the script did: by its signal, or with its exit code."""
    sys.stdout.flush()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL) if -status not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -status)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
