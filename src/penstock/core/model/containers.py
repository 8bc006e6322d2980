"""What a job brings to run in: an image, and what of its node it sees inside."""

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

PullRule = Literal["missing", "always", "never"]
RuntimeKind = Literal["podman", "apptainer", "charliecloud", "bubblewrap"]
AnyRuntime = Literal["", "podman", "apptainer", "charliecloud", "bubblewrap"]

LABELS = "penstock.image/"
"""Labels of nodes that begin like this say which runtimes work there: their agents set them, once they have tried."""
NOT_HERE = "none"
"""Value of a label where nothing of the kind works."""
BY_NAME, BY_FOLDER = f"{LABELS}name", f"{LABELS}folder"
"""The node runs images that are named, or those that lie unpacked in a folder."""
_PART, _LABEL = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*", r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9A-Fa-f]{32,}"
_REFERENCE = re.compile(
    rf"(?P<name>(?:{_HOST}/)?{_PART}(?:/{_PART})*)(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@{_DIGEST})?"
)
_REPOSITORY_MAX = 255
_TRANSPORTS = re.compile("(?:containers-storage|dir|docker-(?:archive|daemon)|oci(?:-archive)?|ostree|sif|tarball):")
"""What a runtime reads before a `:` as a place of the node, where root would open any file for a job."""


def is_reference(name: str) -> bool:
    """Return whether an image is named as in a registry, and cannot be read as a file of the node or as an option.

    Source: grammar of distribution/reference; transports of containers/image.
    """
    found = _REFERENCE.fullmatch(name)
    return found is not None and len(found["name"]) <= _REPOSITORY_MAX and not _TRANSPORTS.match(name)


PATH_MAX = 1_024
_PLAIN = re.compile(r'/[^,:"\\]*')


def is_plain(path: str) -> bool:
    """Return whether a path means the same in the lists of mounts of all runtimes, none of which can quote.

    Absolute and printable, without `,` (Podman, Apptainer), `:` (Charliecloud, Apptainer), `"` (Podman reads CSV) and
    `\\` (Apptainer's escape), and without parts that a runtime would clean away.
    """
    if len(path) > PATH_MAX or not path.isprintable() or not _PLAIN.fullmatch(path):
        return False
    return not {"", ".", ".."} & set(path[1:].removesuffix("/").split("/"))


def is_within(path: str, folders: Iterable[str]) -> bool:
    """Return whether a path is one of these folders, or below one; by its text alone."""
    return any(f"{path.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/") for folder in folders)


class Mount(msgspec.Struct, frozen=True, omit_defaults=True):
    """A folder or file of the node that a container sees."""

    source: str
    target: str
    read_only: bool = False

    def __str__(self) -> str:
        return f"{self.source}:{self.target}{':ro' if self.read_only else ''}"


class ImageAsk(msgspec.Struct, frozen=True, omit_defaults=True):
    """The image that a job's replicas run in."""

    name: str
    """As a registry names it; or the absolute path of an unpacked image on the nodes."""
    pull: PullRule = "missing"
    runtime: AnyRuntime = ""
    """Empty: what the node has."""
    mounts: tuple[Mount, ...] = ()
    among: tuple[str, ...] = ()
    """Runtimes that the cluster allows, in orders to nodes; none: all."""
    folders: tuple[str, ...] = ()
    """Folders of nodes below which what a job names may be mounted, in orders to nodes."""

    @property
    def is_folder(self) -> bool:
        return self.name.startswith("/")

    @property
    def label(self) -> str:
        """The label that a node must have for it."""
        return LABELS + self.runtime if self.runtime else BY_FOLDER if self.is_folder else BY_NAME
