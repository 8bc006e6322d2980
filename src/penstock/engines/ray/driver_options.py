"""How the driver is started."""

import hashlib
import os
from pathlib import Path
from typing import Self

import msgspec


class DriverOptions(msgspec.Struct, frozen=True):
    namespace: str
    """Of this server's actors: no other server's holders are found."""
    base: str
    """Folder for agents on each machine."""
    address: str = ""
    """Of the cluster's head; empty: a local one, which is started where it does not live."""
    local: str = ""
    """Folder of the local one."""
    shared: str = ""
    """Folder that all nodes see, for the folders of jobs."""
    end: bool = False
    """End all holders and their agents, and leave."""

    @classmethod
    def of(cls, folder: Path, address: str, shared: str) -> Self:
        """Return the options of the server whose engine has `folder`; agents lie below /var/tmp of each machine."""
        mark = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
        base = f"/var/tmp/penstock-{os.getuid()}/{mark}"  # noqa: S108 - made private, and refused where it is not
        return cls(f"penstock-{mark}", base, address, str(folder / "local"), shared)
