"""A stand-in for the control program of NVIDIA's MPS: real processes that keep to its manual, and can be made to fail.

`-d` starts a daemon that writes its number into its pipe folder, and a server; a second daemon is refused. Without
options it passes commands on to the daemon: `quit` ends both.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from penstock.devices.mps import CONTROL, SERVER

_SCRIPT = """#!/bin/sh
pipes=${CUDA_MPS_PIPE_DIRECTORY:?}
number=$pipes/nvidia-cuda-mps-control.pid
lives() { [ -e "$number" ] && kill -0 "$(cat "$number")" 2>/dev/null; }
case "${1:-}" in
-d)
    if [ "${2:-}" = "-multiuser-server" ] && [ -e BIN/old ]; then echo "unknown option" >&2; exit 2; fi
    if [ -e BIN/fails ]; then cat BIN/fails >&2; exit 1; fi
    if lives; then echo "An instance of this daemon is already running" >&2; exit 1; fi
    echo "$CUDA_VISIBLE_DEVICES $*" >> BIN/started
    rm -f "$pipes/control"; mkfifo "$pipes/control"
    setsid "$0" --serve < /dev/null > /dev/null 2>&1 &
    while ! lives; do sleep 0.005; done
    ;;
--serve)
    BIN/nvidia-cuda-mps-server &
    server=$!
    echo $$ > "$number.new"; mv "$number.new" "$number"
    while read -r line < "$pipes/control"; do
        case "$line" in
        get_server_list) echo $server > "$pipes/answer" ;;
        quit*) kill $server; wait $server; rm -f "$number"; exit 0 ;;
        esac
    done
    ;;
*)
    lives || { echo "Cannot find MPS control daemon process" >&2; exit 1; }
    while read -r line; do echo "$line" > "$pipes/control"; done
    while lives; do sleep 0.005; done
    ;;
esac
"""
_SERVER = "#!/bin/sh\ntrap 'exit 0' TERM\nwhile :; do sleep 1000 & wait $!; done\n"


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """Give a folder whose path leaves room for the names of sockets."""
    with tempfile.TemporaryDirectory(prefix="mps-", dir="/tmp") as folder:
        yield Path(folder)


class MpsProgram:
    """The program in a folder; put that folder first in PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        for name, text in ((CONTROL, _SCRIPT.replace("BIN", str(folder))), (SERVER, _SERVER)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)

    def fail(self, text: str) -> None:
        """Let daemons not start from now on."""
        (self.folder / "fails").write_text(text)

    def mend(self) -> None:
        (self.folder / "fails").unlink()

    def be_old(self) -> None:
        """Not know the option by which one server takes clients of all users."""
        (self.folder / "old").touch()

    def started(self) -> list[str]:
        """Return the devices that daemons were started for, and with which options."""
        log = self.folder / "started"
        return log.read_text().splitlines() if log.exists() else []
