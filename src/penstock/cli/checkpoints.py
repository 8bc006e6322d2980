"""`penstock checkpoints`: lists the checkpoints of a job or a folder, and verifies every byte."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import typer

from penstock.cli.options import JsonOption
from penstock.cli.output import Console, marked, print_json, say, table
from penstock.cli.place import data_folder
from penstock.cli.progress import progress, shared
from penstock.core.model.errors import PenstockError
from penstock.core.model.ids import JobId
from penstock.core.model.quantities import format_duration, format_size
from penstock.core.model.words import counted

if TYPE_CHECKING:
    from rich.text import Text

    from penstock.training.storage.directory import CheckpointDirectory


class NoCheckpoints(PenstockError):
    code = "not_found"


class DamagedCheckpoints(PenstockError):
    code = "damaged_checkpoint"


class CheckpointView(msgspec.Struct, frozen=True):
    """One checkpoint. `problem` says why it must not be restored; empty without a known problem."""

    step: int
    problem: str
    verified: bool
    """Every byte was read and compared."""
    size_bytes: int = 0
    shared_bytes: int = 0
    """Of that, held together with another checkpoint."""
    attempt: int = 0
    world_size: int = 0
    layout: str = ""
    created_ms: int = 0
    files: int = 0
    path: str = ""


class Checked(NamedTuple):
    folder: Path
    found: list[CheckpointView]


def checkpoints(
    which: Annotated[str, typer.Argument(help="Number of a job, or a folder of checkpoints.")],
    verify: Annotated[bool, typer.Option("--verify", help="Read and compare every byte.")] = False,
    step: Annotated[int | None, typer.Option("--step", help="Only the checkpoint of this step.")] = None,
    json: JsonOption = False,
) -> None:
    """List the checkpoints of a job. With --verify, check that each can be restored."""
    checked = _look(_folder_of(which), verify=verify, step=step, quiet=json)
    if json:
        print_json({"folder": str(checked.folder), "checkpoints": checked.found})
    else:
        _print(checked)
    damaged = [view.step for view in checked.found if view.problem]
    if damaged:
        listed = ", ".join(map(str, damaged))
        raise DamagedCheckpoints(
            f"damaged: the checkpoint of step {listed}", hint="the newest that is whole is restored instead"
        )


def _folder_of(which: str) -> Path:
    """Return the folder of checkpoints to use. Raises: NoCheckpoints."""
    if which.isdecimal() and not Path(which).is_dir():
        folder = data_folder().checkpoints(JobId(int(which)))
        if not folder.is_dir():
            raise NoCheckpoints(
                f"job {which} has no checkpoints in {folder.parent.parent.parent}",
                hint="is this the machine, and the data folder (--data), that the job ran with?",
            )
        return folder
    folder = Path(which)
    if not folder.is_dir():
        raise NoCheckpoints(f"{which!r} is not a folder; expected one with checkpoints, or the number of a job")
    return folder


def _look(folder: Path, *, verify: bool, step: int | None, quiet: bool) -> Checked:
    from penstock.training.storage.directory import CheckpointDirectory

    directory = CheckpointDirectory(folder)
    steps = directory.steps() if step is None else [step]
    if step is not None and step not in directory.steps():
        known = ", ".join(map(str, directory.steps()[:8])) or "none"
        raise NoCheckpoints(f"no checkpoint of step {step} in {folder}; there are: {known}")
    text = f"reading {counted(len(steps), 'checkpoint')}"
    with progress(text, total=len(steps), noun="checkpoints", quiet=quiet or not verify) as on_share:
        return Checked(folder, [_view(directory, one, verify=verify) for one in shared(steps, on_share, len(steps))])


def _view(directory: "CheckpointDirectory", step: int, *, verify: bool) -> CheckpointView:
    from penstock.training.errors import DamagedCheckpoint

    path = directory.path(step)
    try:
        manifest = directory.verify(step) if verify else directory.manifest(step)
    except DamagedCheckpoint as error:
        return CheckpointView(step, error.problem, verified=verify, path=str(path))
    shared = sum(b.size_bytes for b in manifest.blobs if _names(path / b.name) > 1)
    return CheckpointView(
        step,
        "",
        verified=verify,
        size_bytes=manifest.size_bytes,
        shared_bytes=shared,
        attempt=manifest.attempt,
        world_size=manifest.world_size,
        layout=manifest.layout,
        created_ms=manifest.created_ms,
        files=len(manifest.blobs),
        path=str(path),
    )


def _names(path: Path) -> int:
    try:
        return path.stat().st_nlink
    except OSError:
        return 0


def _print(checked: Checked) -> None:
    now_ms = time.time_ns() // 1_000_000
    rows = [
        [
            str(view.step),
            _verdict(view),
            format_size(view.size_bytes) if view.size_bytes else "",
            format_size(view.shared_bytes) if view.shared_bytes else "",
            str(view.world_size or ""),
            view.layout,
            str(view.attempt or ""),
            f"{format_duration(max(0, now_ms - view.created_ms))} ago" if view.created_ms else "",
        ]
        for view in checked.found
    ]
    columns = ("step", "state", "size", "shared", "ranks", "layout", "attempt", "saved")
    right, drop = (
        ("step", "size", "shared", "ranks", "attempt"),
        ("layout", "shared", "ranks", "attempt", "saved", "size"),
    )
    Console().print(
        table(columns, rows, right=right, drop=drop, text=("state",), of=checked.found, kind=CheckpointView, key="step")
    )
    say(f"in {checked.folder}" if rows else f"no checkpoints in {checked.folder}")


def _verdict(view: CheckpointView) -> "str | Text":
    if view.problem:
        return marked("[red]damaged[/]: {}", view.problem)
    return marked("[green]whole[/]") if view.verified else "not read"
