"""Sending a folder as a job's working directory: the first time, unchanged, and after a few files have changed.

A real server on loopback takes it; a job starts in it on one node, once unpacked there and once not. The reference is
`git status` of the same folder for what is unchanged, and the sizes of the changed files for what goes over the line.
"""

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.harness import Server, result, server
from penstock.client.snapshots import Sent

FILES, BYTES, CHANGED, FOLDERS = 5_000, 200 * 10**6, 10, 100
SETTLED_S = 2.5
"""Files changed more lately are read again: a snapshot after this pause is that of a folder nobody works on."""
UNCHANGED_LIMIT_S, SENT_LIMIT = 0.5, 1.1
"""2026-11, two cores."""


def fill(folder: Path, files: int, size: int) -> None:
    """Write files of equal size with contents that nothing compresses, and a .gitignore as projects have it."""
    for number in range(files):
        path = folder / f"part-{number % FOLDERS:02}" / f"file-{number:05}.bin"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(size))
    ignored = ["__pycache__/", "*.py[cod]", "build/", "dist/", ".venv/", "*.log", ".cache", "*.egg-info/", "wandb/"]
    (folder / ".gitignore").write_text("\n".join(ignored) + "\n")


def timed(work: Callable[[], Sent]) -> tuple[float, Sent]:
    begun = time.perf_counter()
    found = work()
    return time.perf_counter() - begun, found


def git_s(folder: Path) -> float | None:
    """Return how long `git status` of the unchanged folder takes; None without git."""
    git = shutil.which("git")
    if git is None:
        return None
    for words in (["init", "-q"], ["add", "-A"]):
        subprocess.run([git, "-C", str(folder), *words], check=True, capture_output=True)
    subprocess.run([git, "-C", str(folder), "status", "-s"], check=True, capture_output=True)
    begun = time.perf_counter()
    subprocess.run([git, "-C", str(folder), "status", "-s"], check=True, capture_output=True)
    found = time.perf_counter() - begun
    shutil.rmtree(folder / ".git")
    return found


def started_s(running: Server, name: str) -> float:
    """Return the time from a submit to the end of a job that does nothing in a snapshot."""
    begun = time.perf_counter()
    made = running.client.submit({"command": ["true"], "cpus": 1, "workdir": {"snapshot": name}}).jobs[0].id
    while running.client.job(made).state not in ("succeeded", "failed"):
        time.sleep(0.005)
    assert running.client.job(made).state == "succeeded", running.client.job(made).reason
    return time.perf_counter() - begun


def command_s(running: Server, folder: Path) -> float:
    """Return how long the whole command takes: `penstock submit --snapshot .` of an unchanged folder."""
    words = ["penstock", "submit", "--data", str(running.data), "--snapshot", ".", "--cpus", "1", "--", "true"]
    begun = time.perf_counter()
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the files")
    quick = parser.parse_args().quick
    files = FILES // 10 if quick else FILES
    size = BYTES // FILES
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as root, server() as running:
        os.environ["XDG_CACHE_HOME"] = f"{root}/cache"
        folder = Path(root) / "project"
        folder.mkdir()
        fill(folder, files, size)
        time.sleep(SETTLED_S)
        first_s, first = timed(lambda: running.client.send_folder(folder))
        result("snapshot_first_mb_per_s", first.bytes / first_s / 1e6, "MB/s", "higher", None)
        times = [timed(lambda: running.client.send_folder(folder))[0] for _ in range(5)]
        reference = git_s(folder)
        named = {"name": "git status of the same folder", "value": reference} if reference is not None else None
        result("snapshot_unchanged_s", sorted(times)[2], "s", "lower", UNCHANGED_LIMIT_S, named)
        for number in range(CHANGED):
            (folder / f"part-{number:02}" / f"file-{number:05}.bin").write_bytes(os.urandom(size))
        changed_s, changed = timed(lambda: running.client.send_folder(folder))
        result("snapshot_changed_s", changed_s, "s", "lower", None)
        ratio = changed.sent_bytes / (CHANGED * size)
        sizes = {"name": "sizes of the changed files", "value": 1.0}
        result("snapshot_sent_share", ratio, "share", "lower", SENT_LIMIT, sizes)
        running.client.submit({"command": ["true"], "cpus": 1})
        result("snapshot_start_unpacking_s", started_s(running, changed.name), "s", "lower", None)
        result("snapshot_start_unpacked_s", started_s(running, changed.name), "s", "lower", None)
        result("snapshot_command_unchanged_s", command_s(running, folder), "s", "lower", None)


if __name__ == "__main__":
    main()
