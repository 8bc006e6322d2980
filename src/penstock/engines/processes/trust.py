"""Checks that a data folder is private: none of its files is trusted unchecked.

They say which programs are started, who is an administrator, and which process is the server.
"""

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from penstock.engines.processes.paths import DataFolder
from penstock.privatefiles import problem_inside, problem_of, refuse

log = logging.getLogger(__name__)

FILES = (
    "token",
    "tokens.json",
    "secrets.key",
    "secrets.key.lock",
    "session.key",
    "store.url",
    "cluster.yaml",
    "limits.yaml",
)
LIVE = ("server.json", "server.lock", "setup.lock", "server.log")
PATTERNS = ("standby-*.json", "store.given-*")
FOLDERS = ("log", "log/snapshots", "certificates", "nodes", "nodes/*")
"""Everything in them is ours, unlike `jobs`: the programs of jobs write there."""


def check_data(data: DataFolder) -> None:
    """Refuse a data folder in which another user owns or may write files that would be trusted.

    Nothing happens where there is none. Links are followed: the way to what they name is looked at as well.
    Raises: NotPrivate.
    """
    refuse([problem_of(data.root)])
    refuse(map(problem_inside, _believed(data.root)))


def _believed(root: Path) -> Iterator[Path]:
    yield from (root / name for name in (*FILES, *LIVE, "jobs"))
    for pattern in PATTERNS:
        yield from _found(root, pattern)
    for pattern in FOLDERS:
        for folder in _found(root, pattern):
            yield folder
            yield from _found(folder, "*")


def _found(folder: Path, pattern: str) -> list[Path]:
    """Return matching paths; none where listing is denied: we cannot use files that we cannot read."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def close_secrets(data: DataFolder) -> None:
    """Close tokens and keys to other users; warn where these could read them."""
    own = (data.user_token, data.root / "tokens.json", data.root / "session.key", data.secret_keys, data.store_address)
    nodes = _found(data.root, "nodes/*/certificate.pem")
    for path in (*own, data.certificates / "server.pem", *nodes):
        try:
            about = path.stat()
        except OSError:
            continue
        if about.st_uid == os.geteuid() and stat.S_IMODE(about.st_mode) & 0o077:
            log.warning("%s could be read by others: what was in it may be known; see docs/security.md", path)
            path.chmod(0o600)
