"""The form in which a list or a thing is printed, as `-o`, `--format`, `--columns` and `--sort` choose it.

One command runs in a process, so what was chosen is kept here: the commands make their tables and values as ever, and
`cli/output.py`, where everything is printed, gives them the form.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from penstock.cli.errors import UsageError
from penstock.core.model.errors import nearest

OUTPUTS = ("wide", "json", "yaml", "csv", "name")


class Form(NamedTuple):
    """What was chosen; by default a table or page for people, as wide as the terminal."""

    output: str = ""
    """One of `OUTPUTS`, or empty."""
    template: str = ""
    """A line for each item, such as `{id} {name}`."""
    columns: tuple[str, ...] = ()
    """Names of columns or fields, in this order; empty: all."""
    sort: str = ""
    """Name of a column or field; with `-` before it, the greatest first."""

    @property
    def bare(self) -> bool:
        """Whether the items alone are printed, without a word for people."""
        return self.output in ("csv", "name") or bool(self.template)

    @property
    def of_items(self) -> bool:
        """Whether items with named fields are needed, not only a page."""
        return self.bare or bool(self.columns or self.sort)


_kept = [Form()]
_answered = [False]


def chosen() -> Form:
    """Return the form of what this process prints."""
    return _kept[-1]


@contextmanager
def using(form: Form) -> Iterator[None]:
    """Print in a form meanwhile. Raises: UsageError, at the end, where that form needs items and none came."""
    _kept.append(form)
    _answered.append(False)
    try:
        yield
        if form.of_items and not _answered[-1]:
            raise UsageError("this is no list of things with fields", hint="-o json and -o yaml have all of it")
    finally:
        _kept.pop()
        inner = _answered.pop()
        _answered[-1] |= inner


def answered() -> None:
    """Note that items were printed in the form that was chosen."""
    _answered[-1] = True


def form_of(output: str, template: str, columns: str, sort: str, *, as_json: bool) -> Form:
    """Return the form that the options choose. Raises: UsageError for words that are none, or contradict each other."""
    if output and output not in OUTPUTS:
        hint = f"a file is written with --out {output}" if "." in output else nearest(output, OUTPUTS)
        raise UsageError(f"-o is '{output}', expected one of {', '.join(OUTPUTS)}", hint=hint)
    if as_json and output not in ("", "json"):
        raise UsageError(f"--json and -o {output} contradict each other", hint="give one of them")
    output = "json" if as_json else output
    names = tuple(name for name in (part.strip() for part in columns.split(",")) if name)
    if columns and not names:
        raise UsageError("--columns names no column", hint="such as --columns id,name,state")
    if template and output:
        raise UsageError(f"--format and -o {output} contradict each other", hint="give one of them")
    if names and (template or output not in ("", "wide", "csv")):
        other = "--format" if template else f"-o {output}"
        raise UsageError(f"--columns is for tables and csv, not for {other}", hint="give one of them")
    form = Form(output, template, names)
    return sorted_by(form, sort) if sort else form


def sorted_by(form: Form, sort: str) -> Form:
    """Return the form with its items sorted by a column or field. Raises: UsageError beside JSON or YAML."""
    if form.output in ("json", "yaml"):
        raise UsageError(
            f"--sort is for tables, csv, names and --format, not for -o {form.output}", hint="leave it out"
        )
    return form._replace(sort=sort)
