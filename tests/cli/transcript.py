"""A shell in a real terminal of 80 columns and 24 lines, and the commands that a document shows."""

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.cli.terminals import plain, written

COLUMNS, LINES = 80, 24
TIMEOUT_S = 60.0
_END = "@@end"


def commands(markdown: str, section: str = "") -> list[str]:
    """Return the commands of the indented blocks of a document, one each, without comments.

    Args:
        section: only below this heading, up to the next one.
    """
    if section:
        markdown = re.split(r"^## ", markdown.partition(f"## {section}\n")[2], flags=re.MULTILINE)[0]
    joined = re.sub(r"\\\n\s*", "", markdown)
    lines = [line[4:].split("   #")[0].strip() for line in joined.splitlines() if line.startswith("    ")]
    return [line for line in lines if re.match(r"(penstock|export|pip|python|make)\b", line)]


class Seen(NamedTuple):
    """What a reader sees of one command."""

    code: int
    lines: list[str]
    """Without colours, as wide as they were written."""

    @property
    def text(self) -> str:
        """All of it in one line, each run of spaces as one."""
        return " ".join(" ".join(self.lines).split())


class Shell:
    """A shell in a terminal: what it is given is typed, and what comes back is read until the command has ended."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            try:
                os.chdir(folder)
                words = ["bash", "--norc", "--noprofile", "--noediting"]
                os.execvpe("bash", words, {**variables, "TERM": "xterm-256color", "PS1": "", "PS2": ""})
            finally:
                os._exit(127)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.play("stty -echo")

    def play(self, command: str, timeout_s: float = TIMEOUT_S) -> Seen:
        """Type a command and return what it showed once it has ended."""
        os.write(self._terminal, f"{command}\nprintf '\\n{_END}:%s@@\\n' $?\n".encode())
        ends = (re.search(rf"\n{_END}:(\d+)@@\r?\n", text) for text in written(self._terminal, command, timeout_s))
        ended = next(filter(None, ends))
        shown = plain(ended.string[: ended.start()]).strip("\n")
        return Seen(int(ended[1]), [line.rsplit("\r", 1)[-1].rstrip() for line in shown.split("\n")])

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._terminal)


@contextlib.contextmanager
def shell(folder: Path, variables: Mapping[str, str]) -> Iterator[Shell]:
    """Open a shell whose `penstock` and `python` are those of this interpreter."""
    programs = folder / ".programs"
    programs.mkdir(exist_ok=True)
    script = programs / "penstock"
    script.write_text(f"#!{sys.executable} -P\nfrom penstock.cli.main import main\nmain()\n")
    script.chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), variables.get("PATH", os.defpath)])
    opened = Shell(folder, {**variables, "PATH": path, "HOME": str(folder)})
    try:
        yield opened
    finally:
        opened.close()
