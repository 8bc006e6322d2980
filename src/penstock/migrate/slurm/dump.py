"""The file that `sacctmgr dump` writes, as associations: accounts in a tree, and users in accounts.

Lines are `Cluster - 'name':Key=Value:...`, then `Parent - 'account'` before its children, `Account - ...` and
`User - ...`. Values may be quoted; a backquote in quotes was a quote. Resource names may hold colons
(`GrpTRES=cpu=100,gres/gpu:a100=8`), unquoted: written so by Slurm 22.05.
Source: https://slurm.schedmd.com/sacctmgr.html#SECTION_FLAT-FILE-DUMP-AND-LOAD
"""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from penstock.core.model.errors import nearest
from penstock.formats.files import whole_text
from penstock.migrate.errors import ImportFault, all_of
from penstock.migrate.report import SourcePlace
from penstock.migrate.slurm.lines import FAULTS_MAX, LINE_CHARACTERS_MAX, SlurmField

ASSOCIATIONS_MAX = 200_000
OPTIONS = (
    "AdminLevel Classification Comment Coordinator DefaultAccount DefaultQOS DefaultWCKey Description Fairshare"
    " Federation Features Flags FedState GrpCPUMins GrpCPURunMins GrpCPUs GrpJobs GrpJobsAccrue GrpMemory GrpNodes"
    " GrpSubmitJobs GrpTRES GrpTRESMins GrpTRESRunMins GrpWall ID MaxCPUMinsPerJob MaxCPUsPerJob MaxJobs MaxJobsAccrue"
    " MaxNodesPerJob MaxSubmitJobs MaxTRESMins MaxTRESMinsPerJob MaxTRESPerJob MaxTRESPerNode MaxTRESRunMins"
    " MaxWallDurationPerJob MinPrioThresh MinPrioThreshold Organization Parent Partition Priority QOS Shares WCKeys"
)
"""Options of a line, as Slurm writes or reads them."""
_SPELLING = {word.lower(): word for word in OPTIONS.split()}
_LINE = re.compile(r"(Cluster|Parent|Account|User|QOS|WCKey)\s+-\s+(\S.*)", re.IGNORECASE)
_QUOTED = re.compile(r"'([^']*)'|([^:]*)")
_OPTION = re.compile(r"([A-Za-z]+)\s*=")


class Association(msgspec.Struct, frozen=True, kw_only=True):
    """An account or, with `user`, a user in an account; `root` is the top."""

    place: SourcePlace
    account: str
    parent: str = ""
    """Account above it; of a user's: the account itself."""
    user: str = ""
    cluster: str = ""
    options: tuple[SlurmField, ...] = ()

    def get(self, key: str) -> str:
        return next((field.value for field in reversed(self.options) if field.key == key), "")


def read_dump(path: Path) -> list[Association]:
    """Return the associations of a dump in its order, the cluster's own options as those of account `root`.

    Raises: ImportFault that lists every malformed line and unknown option (up to `FAULTS_MAX`), and above the limits.
    """
    found: list[Association] = []
    faults: list[ImportFault] = []
    parent, cluster = "root", ""
    for place, text in _lines(whole_text(path, SourcePlace), str(path)):
        try:
            kind, name, options = _line(place, text)
        except ImportFault as fault:
            faults.append(fault)
            if len(faults) >= FAULTS_MAX:
                break
            continue
        if kind == "parent":
            parent = name
        elif kind == "cluster":
            if cluster:
                raise place.fault("Cluster", name, f"one cluster; '{cluster}' is before it", "import each separately")
            cluster = name
            found.append(Association(place=place, account="root", cluster=name, options=options))
        elif kind == "account":
            above = next((field.value for field in options if field.key == "Parent"), parent)
            found.append(Association(place=place, account=name, parent=above, cluster=cluster, options=options))
        elif kind == "user":
            found.append(
                Association(place=place, account=parent, parent=parent, user=name, cluster=cluster, options=options)
            )
        if len(found) > ASSOCIATIONS_MAX:
            raise place.fault("", "", f"at most {ASSOCIATIONS_MAX} accounts and users")
    if faults:
        raise all_of(faults)
    return found


def _lines(text: str, file: str) -> Iterator[tuple[SourcePlace, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        place = SourcePlace(file, number)
        if len(line) > LINE_CHARACTERS_MAX:
            raise place.fault("", "", f"a line of at most {LINE_CHARACTERS_MAX} characters")
        line = line.rstrip("\r")
        if line.strip() and not line.lstrip().startswith("#"):
            yield place, line


def _line(place: SourcePlace, text: str) -> tuple[str, str, tuple[SlurmField, ...]]:
    """Return the kind of a line (lower case), the name and the options."""
    match = _LINE.fullmatch(text.strip())
    if match is None:
        word = text.split("-")[0].strip()
        hint = nearest(word, ("Cluster", "Parent", "Account", "User")) if word else ""
        raise place.fault(
            "", text.strip(), "Cluster, Parent, Account or User, such as Account - 'name':Key=Value", hint
        )
    rest = match[2]
    name, at = _value(rest, 0)
    if not name:
        raise place.fault(match[1], rest, "a name")
    return match[1].lower(), name, tuple(_options(rest, at, place))


def _value(text: str, at: int) -> tuple[str, int]:
    """Return the text up to the next colon outside of quotes, without quotes, and where it ends."""
    match = _QUOTED.match(text, at)
    assert match is not None  # the second alternative matches nothing, too
    if match[1] is not None:
        return match[1].replace("`", '"'), match.end()
    return match[2].strip(), match.end()


def _options(text: str, at: int, place: SourcePlace) -> Iterator[SlurmField]:
    key = ""
    value = ""
    while at < len(text):
        if text[at] != ":":
            raise place.fault(key, text[at:], "a colon before the next option")
        at += 1
        match = _OPTION.match(text, at)
        name = _SPELLING.get(match[1].lower()) if match else None
        if match is not None and name is not None:
            if key:
                yield SlurmField(key, value)
            key = name
            value, at = _value(text, match.end())
        elif "TRES" in key:  # a resource with a type: gres/gpu:a100=8
            more, at = _value(text, at)
            value = f"{value}:{more}"
        else:
            word = match[1] if match else text[at:]
            raise place.fault(word, text[at:], "an option of sacctmgr", nearest(word, _SPELLING.values()))
    if key:
        yield SlurmField(key, value)
