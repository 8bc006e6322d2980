"""The output of `sacctmgr -P show qos` and `show assoc`: rows with `|` between columns, and a heading.

Source: https://slurm.schedmd.com/sacctmgr.html#SECTION_LIST/SHOW-ASSOCIATION-FORMAT-OPTIONS
"""

from pathlib import Path

from penstock.core.model.errors import nearest
from penstock.formats.files import whole_text
from penstock.migrate.report import SourcePlace
from penstock.migrate.slurm.dump import ASSOCIATIONS_MAX, Association
from penstock.migrate.slurm.lines import SlurmField

QOS_MAX = 10_000
_OPTION_OF = {
    "Share": "Fairshare",
    "GrpSubmit": "GrpSubmitJobs",
    "MaxTRES": "MaxTRESPerJob",
    "MaxSubmit": "MaxSubmitJobs",
    "MaxWall": "MaxWallDurationPerJob",
    "MaxTRESMins": "MaxTRESMinsPerJob",
    "Def QOS": "DefaultQOS",
}
"""Columns that are called otherwise than the options of a dump."""


def read_table(path: Path, first: str, *, rows_max: int) -> list[tuple[SourcePlace, dict[str, str]]]:
    """Return rows by column with their places; `first` is a column that must be there.

    Raises: ImportFault for a file without a heading, a row with another number of columns, and above `rows_max`.
    """
    file = str(path)
    lines = enumerate(whole_text(path, SourcePlace).split("\n"), 1)
    rows = [(SourcePlace(file, number), line.rstrip("\r")) for number, line in lines if line.strip()]
    if not rows:
        raise SourcePlace(file).fault("", "", f"a heading with the column {first}", "print it with sacctmgr -P")
    heading = [word.strip() for word in rows[0][1].split("|")]
    if first not in heading:
        hint = nearest(first, heading) or "print it with sacctmgr -P, without -n"
        raise rows[0][0].fault("", rows[0][1], f"a heading with the column {first}", hint)
    if len(rows) - 1 > rows_max:
        raise SourcePlace(file).fault("", len(rows) - 1, f"at most {rows_max} rows")
    found = []
    for place, line in rows[1:]:
        cells = line.split("|")
        if len(cells) != len(heading):
            raise place.fault("", line, f"{len(heading)} columns as in the heading; found {len(cells)}")
        row = list(zip(heading, cells, strict=True))
        if any(cell.strip() for name, cell in row if not name):
            raise rows[0][0].fault("", rows[0][1], "a name for each column that has values")
        found.append((place, {name: cell for name, cell in row if name}))  # with -p lines end in a separator
    return found


def read_associations(path: Path) -> list[Association]:
    """Return the associations that `sacctmgr -P show assoc` lists.

    Parents of accounts come from a column `ParentName`, or from the indentation of `show assoc tree`;
    without both all accounts hang on the root.
    """
    rows = read_table(path, "Account", rows_max=ASSOCIATIONS_MAX)
    indented = any(row["Account"].startswith(" ") for _, row in rows)
    above: list[str] = []
    found = []
    for place, row in rows:
        account, user = row["Account"].strip(), row.get("User", "").strip()
        if not account:
            raise place.fault("Account", "", "the name of an account")
        parent = (row.get("ParentName") or row.get("Par Name") or "").strip()
        if indented and not user:
            depth = len(row["Account"]) - len(row["Account"].lstrip(" "))
            parent = above[depth - 1] if 0 < depth <= len(above) else ""
            above[depth:] = [account]
        options = [SlurmField(_OPTION_OF.get(key, key), cell.strip()) for key, cell in row.items() if cell.strip()]
        skipped = ("Cluster", "Account", "User", "ParentName", "Par Name")
        found.append(
            Association(
                place=place,
                account=account,
                parent=account if user else "" if account == "root" else parent or "root",
                user=user,
                cluster=row.get("Cluster", ""),
                options=tuple(option for option in options if option.key not in skipped),
            )
        )
    return found
