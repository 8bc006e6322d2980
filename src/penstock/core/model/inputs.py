"""What a job takes from elsewhere: URLs, and the paths at which its programs find their contents on the nodes."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import msgspec

from penstock.core.model.errors import nearest
from penstock.core.model.folder_snapshots import path_problem
from penstock.core.model.jobs import Input

INPUTS_MAX = 64
"""Of one job."""
URL_MAX = 2_048
ENTRIES_MAX = 100_000
"""Files of one input."""
SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,31})://([^/?#]*)([^?#]*)(.*)", re.ASCII)
PACKAGES: dict[str, str] = {
    "file": "",
    "ftp": "",
    "http": "aiohttp",
    "https": "aiohttp",
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "az": "adlfs",
    "hf": "huggingface_hub",
    "oss": "ossfs",
    "oci": "ocifs",
    "sftp": "paramiko",
    "ssh": "paramiko",
    "smb": "smbprotocol",
    "hdfs": "pyarrow",
    "webhdfs": "requests",
    "github": "requests",
    "dvc": "dvc",
    "lakefs": "lakefs-spec",
    "tos": "tosfs",
    "r2": "s3fs",
}
"""Protocols of fsspec that name something elsewhere, and the package that each needs beside fsspec."""


def protocol_of(url: str) -> str:
    """Return the protocol of an URL, in lower case; '' where it has none."""
    match = _URL.fullmatch(url)
    return match[1].lower() if match else ""


def host_of(url: str) -> str:
    """Return the host of an URL, or what stands in its place, such as a bucket; without a port, in lower case."""
    match = _URL.fullmatch(url)
    return re.sub(r":\d+$", "", match[2].rpartition("@")[2]).lower() if match else ""


def public_url(url: str) -> str:
    """Return an URL as it may be logged: without its query, which may hold a signature, and without a password."""
    plain = re.split(r"[?#]", url, maxsplit=1)[0]
    return re.sub(r"//[^/]*@", "//", plain, count=1)


def url_problem(url: str) -> str:
    """Return what an URL of an input should be instead, or ''."""
    match = _URL.fullmatch(url)
    if match is None or "\0" in url or len(url) > URL_MAX or not (match[2] or match[3].strip("/")):
        return f"an URL of up to {URL_MAX} characters, such as s3://bucket/train/ or https://host/model.bin"
    if "::" in url:
        return "one URL: chains with '::' are not fetched"
    if "@" in match[2]:
        return "an URL without user and password, which all who see the job would see: give them by `secrets`"
    if match[1].lower() == "file" and (match[2] or ".." in match[3].split("/")):
        return "an absolute path of the nodes: file:///data/train/"
    return ""


def inputs_problem(items: Sequence[Input]) -> str:
    """Return what keeps inputs from lying side by side, or ''."""
    paths = {one.path for one in items}
    for one in items:
        if wrong := path_problem(one.path):
            return f"'{one.path[:80]}': {wrong}"
        parent = one.path.rpartition("/")[0]
        while parent:
            if parent in paths:
                return f"'{one.path[:80]}' lies in '{parent[:80]}', which is another input"
            parent = parent.rpartition("/")[0]
    return ""


def words_of(setting: str) -> tuple[str, ...]:
    """Return the words of a setting that lists some, with commas or blanks between them, in lower case."""
    return tuple(word.lower() for word in re.split(r"[,\s]+", setting) if word)


def allowed_host(host: str, patterns: Iterable[str]) -> bool:
    """Return whether a host may be asked: `*` in a pattern stands for anything; without patterns all may."""
    patterns = tuple(patterns)
    return not patterns or any(fnmatchcase(host, pattern) for pattern in patterns)


def protocol_problem(protocol: str, allowed: Sequence[str]) -> tuple[str, str]:
    """Return what is wrong with a protocol where some are allowed, and a hint; ('', '') where it may be used.

    Args:
        allowed: by the cluster's settings; empty: those that are known.
    """
    known = tuple(allowed) or tuple(PACKAGES)
    if protocol in known:
        return "", ""
    near = "" if allowed else nearest(protocol, known)
    hint = near or f"those that may be used: {', '.join(known)}"
    return ("this cluster does not allow it" if allowed else "it is not known"), hint


def digest(*parts: object) -> str:
    """Return a name for what these parts say."""
    return hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()
