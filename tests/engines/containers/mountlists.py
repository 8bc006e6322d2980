"""Random and mutated paths through the list of mounts, read back by the runtimes themselves.

    python -m tests.engines.containers.mountlists PATHS SEED

gives each runtime that many sources and targets. What is not refused is written into lists of mounts, and each runtime
says what it has understood: Podman by `inspect`, Charliecloud and bubblewrap by what a program finds there. Prints a
JSON line a runtime.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from penstock.engines.containers.commands import NotMountable, mount_words
from penstock.engines.containers.roots import FILES

BATCH = 200
ALPHABET = "abcxyzABC012789,:==\"\"\\\\''{}$%*?[]();&|<>~#!@+-_.  //..\t\n\r\x0b\x7f\u202e\u00e9\u4e2d\u0301\ud800"
ATTACKS = (
    "/x,source=/etc,chown=true", "/x,destination=/etc", "/x:/etc", "/x:/etc:ro", '/x","target=/etc', '/"x",readonly',
    "/x/../../etc", "/x//y", "/./x", "/x/.", "/x\n--privileged", "/x,ro", "/x,bind-propagation=shared", "/x\\,y",
    "/x=y", "/x,type=tmpfs", "/ x", "/x ", "/{0}", "/$HOME", "/~", "/*", "/-v", "/x:z", "/x\\:y", "/%s",
)  # fmt: skip
PARTS = ("usr", "bin", "sbin", "lib", "lib32", "lib64")
LISTED = "/list"


def candidates(rng: random.Random) -> Iterator[str]:
    """Yield paths: attacks, changed in some places, and paths that are all chance."""
    while True:
        text = list(rng.choice(ATTACKS)) if rng.random() < 0.5 else ["/"]
        for _ in range(rng.choice((0, 1, 2, 3, 12))):
            at = rng.randint(1, len(text))
            text[at : at + rng.randint(0, 1)] = rng.choice(ALPHABET)
        yield "".join(text)


def batches(
    runtime: str, base: Path, paths: int, rng: random.Random
) -> Iterator[tuple[list[tuple[str, str]], list[str]]]:
    """Yield pairs of source and target that can be written into lists, with the words of these lists."""
    drawn = candidates(rng)
    pairs: list[tuple[str, str]] = []
    words: list[str] = []
    for number in range(paths):
        source, target = f"{base}/s{number}{next(drawn)}", f"/t{number}{next(drawn)}"
        try:
            words += mount_words(runtime, source, target)  # type: ignore[arg-type]
        except NotMountable:
            pass
        else:
            pairs.append((source, target))
        if pairs and (len(pairs) == BATCH or number == paths - 1):
            yield pairs, words
            pairs, words = [], []


def misread(runtime: str, base: Path, pairs: list[tuple[str, str]], words: list[str]) -> int:
    """Return how many of these mounts a runtime has understood otherwise than they were meant."""
    for source, _ in pairs:
        Path(source).mkdir(parents=True)
        (Path(source) / "id").write_text(source + "\n")
    root = base / "root"
    for part in ("proc", "dev", "sys", "tmp", "etc", *PARTS):
        (root / part).mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (root / name).touch()
    try:
        found = _by_podman(root, words) if runtime == "podman" else _by_running(runtime, root, pairs, words)
        wanted = sorted((source.rstrip("/"), target.rstrip("/")) for source, target in pairs)
        return len(wanted) - len(set(wanted) & set(found)) + max(0, len(found) - len(wanted))
    finally:
        for path in base.iterdir():
            shutil.rmtree(path, ignore_errors=True)


def _by_podman(root: Path, words: list[str]) -> list[tuple[str, str]]:
    name = f"penstock-mounts-{os.getpid()}"
    try:
        done = subprocess.run(
            ["podman", "create", "--name", name, *words, "--rootfs", str(root), "true"], capture_output=True, text=True
        )
        if done.returncode:
            return []
        command = ["podman", "inspect", "--format", "{{json .Mounts}}", name]
        told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        return [(one["Source"].rstrip("/"), one["Destination"].rstrip("/")) for one in told]
    finally:
        subprocess.run(["podman", "rm", "--force", "--ignore", name], capture_output=True)


def _by_running(runtime: str, root: Path, pairs: list[tuple[str, str]], words: list[str]) -> list[tuple[str, str]]:
    """Let a program inside read what is at each target: the source says its own name."""
    for _, target in pairs:
        (root / target[1:]).mkdir(parents=True)
    (root / LISTED[1:]).write_text("".join(f"{target}\n" for _, target in pairs))
    read = f'while IFS= read -r target; do cat "$target/id"; done < {LISTED}'
    parts = [f"/{part}" for part in PARTS if Path(f"/{part}").is_dir()]
    if runtime == "charliecloud":
        command = ["ch-run", *(f"--bind={part}:{part}" for part in parts), *words, str(root), "--", "sh", "-c", read]
    else:
        shown = [word for part in parts for word in ("--ro-bind", part, part)]
        command = ["bwrap", "--bind", str(root), "/", *shown, *words, "--", "sh", "-c", read]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "USER": "root"})
    said = done.stdout.splitlines()
    return [(source.rstrip("/"), target.rstrip("/")) for source, (_, target) in zip(said, pairs, strict=False)]


def play(runtime: str, paths: int, seed: int) -> dict[str, int]:
    """Return how many pairs of paths were written into lists of a runtime, and how many of them it misread."""
    base = Path(tempfile.mkdtemp(prefix="penstock-mounts-", dir="/dev/shm"))
    written = wrong = 0
    try:
        for pairs, words in batches(runtime, base, paths, random.Random(f"{runtime} {seed}")):
            written += len(pairs)
            wrong += misread(runtime, base, pairs, words)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return {"paths": 2 * paths, "written": written, "misread": wrong}


def main(paths: int, seed: int) -> None:
    for runtime in ("podman", "charliecloud", "bubblewrap"):
        print(json.dumps({"runtime": runtime, "seed": seed, **play(runtime, paths // 6, seed)}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
