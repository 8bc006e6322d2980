"""Files in the pilot's folder by which nodes and server understand each other."""

from pathlib import Path


def key_file(folder: Path, number: str, index: int) -> Path:
    """Return where the key of a node lies, by the number of its allocation and its place there."""
    return folder / number / f"{index}.json"


def over_mark(folder: Path, number: str, index: int) -> Path:
    """Return the file that says that no process of a node is left: its warden makes it."""
    return folder / number / f"{index}.over"
