"""What a job's programs are run with, made on each node before they start: a Python environment, and steps."""

import msgspec


class PythonSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Python environment: made of requirements or of a project, or one of conda that is there.

    Files are relative to the folder that the job starts in.
    """

    requirements: tuple[str, ...] = ()
    """Packages, as in a requirements file."""
    file: str = ""
    """A requirements file."""
    project: str = ""
    """A folder with `pyproject.toml` and `uv.lock`, which are followed exactly."""
    version: str = ""
    """Of Python; empty: the first Python of the PATH."""
    index: str = ""
    """Address of a package index, or a folder of packages: nothing else is asked then. Empty: as set on the node."""
    conda: str = ""
    """Name, or folder, of an environment that conda has made: nothing is made then."""
