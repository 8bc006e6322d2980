"""A record of every file operation of a program on one folder (made by strace), and power-loss images made from it.

Theory. What a program wrote is safe only up to the file's last fsync or fdatasync; of later writes any may be on the
disk or not, whole or some sectors of them. Names (creation, renaming, removal) are safe from the next fsync of their
folder on; of later changes of a folder only the first few may have happened, as file systems keep their order.
Source: Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014 (what POSIX leaves open).
"""

import random
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

TRACED = "openat,open,creat,write,pwrite64,writev,pwritev,pwritev2,ftruncate,truncate,fallocate,fsync,fdatasync"
TRACED += ",rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,link,linkat,close,dup,dup2,dup3,fcntl,mmap,execve"
TRACED += ",sync_file_range,copy_file_range,sendfile"
UNDERSTOOD = {"openat", "write", "pwrite64", "ftruncate", "fsync", "fdatasync", "rename", "unlink", "mkdir", "close"}
HARMLESS = {"execve", "fcntl", "mmap"}
NOT_KEPT = "-shm"
"""SQLite's shared index lives in memory and is made anew after a crash: its content is never looked at."""
SECTORS = (512, 4096)

_LINE = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


class File(msgspec.Struct):
    """One inode: its changes in order, each (time, offset, data) or (time, length, None) for a truncation."""

    changes: list[tuple[int, int, bytes | None]] = []
    syncs: list[int] = []


class Name(msgspec.Struct):
    """One change of a folder at `time`: `path` is this file from now on, or None; a renaming also frees `former`."""

    time: int
    path: str
    file: int | None
    former: str = ""


class Recording(msgspec.Struct):
    """Operations by their number (`time`), in the order in which the program made them."""

    root: str
    files: list[File] = []
    names: list[Name] = []
    folder_syncs: list[tuple[int, str]] = []
    answers: list[tuple[int, list[int]]] = []
    """When which jobs were answered."""
    length: int = 0


def record(command: Sequence[str], folder: Path, marker: Path, trace: Path, environment: dict[str, str]) -> Recording:
    """Run `command` and return what it did in `folder`; each line that it writes to `marker` lists answered jobs."""
    strace = ["strace", "-f", "-qq", "-xx", "-s", "10000000", "-e", f"trace={TRACED}", "-o", str(trace)]
    subprocess.run([*strace, *command], check=True, env=environment, timeout=120)
    recorder = _Recorder(str(folder), str(marker))
    with trace.open(encoding="ascii") as lines:
        for line in lines:
            recorder.take(line)
    trace.unlink()
    return recorder.made


class _Recorder:
    def __init__(self, root: str, marker: str) -> None:
        self.made = Recording(root)
        self._marker = marker
        self._open: dict[int, tuple[str, int | None, list[int]]] = {}
        """By descriptor: path, number of the file (None: a folder or the marker), and where the next `write` goes."""
        self._now: dict[str, int] = {}

    def take(self, line: str) -> None:
        found = _LINE.match(line)
        if found is None:
            assert not any(word in line for word in ("unfinished", "resumed")), f"two threads at once: {line[:200]}"
            return
        call, arguments, result = found[1], found[2], int(found[3])
        if result < 0:
            return
        texts = [bytes.fromhex(text.replace("\\x", "")) for text in _TEXT.findall(arguments)]
        self.made.length += 1
        if call in UNDERSTOOD:
            getattr(self, f"_{call}")(arguments, texts, result)
        elif call not in HARMLESS:
            touched = arguments.split(",")[0].isdigit() and int(arguments.split(",")[0]) in self._open
            touched = touched or any(self._ours(text.decode(errors="replace")) for text in texts)
            assert not touched, f"not understood: {line[:200]}"
        elif call == "mmap" and "PROT_WRITE" in arguments and "MAP_SHARED" in arguments:
            path = self._open.get(int(arguments.split(", ")[4]), ("",))[0]
            assert not path or path.endswith(NOT_KEPT), f"{path} is written through a mapping"

    def _ours(self, path: str) -> bool:
        return path == self.made.root or path.startswith(self.made.root + "/")

    def _openat(self, arguments: str, texts: list[bytes], result: int) -> None:
        path = texts[0].decode()
        self._open.pop(result, None)
        if path == self._marker or path == str(Path(self.made.root).parent):
            self._open[result] = (path, None, [0])
        if not self._ours(path):
            return
        if "O_DIRECTORY" in arguments or Path(path).is_dir():
            self._open[result] = (path, None, [0])
            return
        if path not in self._now:
            assert "O_CREAT" in arguments, f"{path} appeared from nowhere"
            self.made.files.append(File([], []))
            self._name(path, len(self.made.files) - 1)
        number = self._now[path]
        if "O_TRUNC" in arguments:
            self.made.files[number].changes.append((self.made.length, 0, None))
        self._open[result] = (path, number, [0])

    def _name(self, path: str, number: int | None, former: str = "") -> None:
        self.made.names.append(Name(self.made.length, path, number, former))
        self._now.pop(former or path, None)
        if number is not None:
            self._now[path] = number

    def _write(self, arguments: str, texts: list[bytes], result: int) -> None:
        path, number, position = self._open.get(_descriptor(arguments), ("", None, [0]))
        if path == self._marker:
            self.made.answers.append((self.made.length, [int(word) for word in texts[0].split()]))
        elif number is not None:
            self._changed(number, position[0], texts[0][:result])
            position[0] += result

    def _pwrite64(self, arguments: str, texts: list[bytes], result: int) -> None:
        _, number, _ = self._open.get(_descriptor(arguments), ("", None, [0]))
        if number is not None:
            self._changed(number, int(arguments.rpartition(", ")[2]), texts[0][:result])

    def _changed(self, number: int, offset: int, data: bytes) -> None:
        self.made.files[number].changes.append((self.made.length, offset, data))

    def _ftruncate(self, arguments: str, _: list[bytes], __: int) -> None:
        _path, number, _position = self._open.get(_descriptor(arguments), ("", None, [0]))
        if number is not None:
            length = int(arguments.rpartition(", ")[2])
            self.made.files[number].changes.append((self.made.length, length, None))

    def _fsync(self, arguments: str, _: list[bytes], __: int) -> None:
        path, number, _position = self._open.get(_descriptor(arguments), ("", None, [0]))
        if number is not None:
            self.made.files[number].syncs.append(self.made.length)
        elif path:
            self.made.folder_syncs.append((self.made.length, path))

    _fdatasync = _fsync

    def _rename(self, _: str, texts: list[bytes], __: int) -> None:
        former, path = (text.decode() for text in texts)
        if self._ours(path):
            self._name(path, self._now[former], former)

    def _unlink(self, _: str, texts: list[bytes], __: int) -> None:
        if self._ours(texts[0].decode()):
            self._name(texts[0].decode(), None)

    def _mkdir(self, *_: object) -> None:
        """Folders are made anew in every image: an empty one more is no loss, and a lost one has lost names."""

    def _close(self, arguments: str, _: list[bytes], __: int) -> None:
        self._open.pop(_descriptor(arguments), None)


def _descriptor(arguments: str) -> int:
    return int(re.split(r"[,<)]", arguments, maxsplit=1)[0])


class PowerLoss:
    """Makes images of the folder as the disk may hold it when the power goes right after operation `time`.

    Args:
        keep: chance (0 to 1) that a write that was not synced is on the disk all the same.
    """

    def __init__(self, recording: Recording, chance: random.Random, *, time: int, keep: float) -> None:
        self._recording, self._chance, self._time, self._keep = recording, chance, time, keep
        self.torn = 0
        self.dropped = 0

    def build(self, target: Path) -> None:
        """Write the image into `target`, an empty folder that stands for the recorded one."""
        for path, number in self._names().items():
            if path.endswith(NOT_KEPT):
                continue
            place = target / Path(path).relative_to(self._recording.root)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(self._content(self._recording.files[number]))

    def _names(self) -> dict[str, int]:
        """Return the files by path: of each folder's changes after its last sync only a first part happened."""
        found: dict[str, int] = {}
        begun: dict[str, int] = {}
        for name in self._recording.names:
            folder = str(Path(name.path).parent)
            if name.time > self._time or begun.get(folder) == -1:
                continue
            if name.time > self._synced(folder) and self._chance.random() >= self._keep:
                begun[folder] = -1
                continue
            found.pop(name.former or name.path, None)
            if name.file is not None:
                found[name.path] = name.file
        return found

    def _synced(self, folder: str) -> int:
        return max((t for t, path in self._recording.folder_syncs if path == folder and t <= self._time), default=0)

    def _content(self, file: File) -> bytes:
        synced = max((t for t in file.syncs if t <= self._time), default=0)
        content = bytearray()
        for time, offset, data in file.changes:
            if time > self._time:
                break
            if time <= synced:
                _apply(content, offset, data)
            elif self._chance.random() >= self._keep:
                self.dropped += 1
            elif data is None or self._chance.random() < 0.5:
                _apply(content, offset, data)
            else:
                self._tear(content, offset, data)
        return bytes(content)

    def _tear(self, content: bytearray, offset: int, data: bytes) -> None:
        """Apply some sectors of a write."""
        self.torn += 1
        sector = self._chance.choice(SECTORS)
        at = 0
        while at < len(data):
            end = min(len(data), at + sector - (offset + at) % sector)
            if self._chance.random() < 0.5:
                _apply(content, offset + at, data[at:end])
            at = end


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
    end = offset + len(data or b"")
    content.extend(bytes(max(0, end - len(content))))
    if data is not None:
        content[offset:end] = data
