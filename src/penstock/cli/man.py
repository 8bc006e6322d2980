"""Manual pages in roff (man(7)), a page for each command and one for the program, from the commands themselves."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock import __version__
from penstock.cli.commands import PANELS
from penstock.cli.examples import EXAMPLES
from penstock.cli.helping import sections
from penstock.cli.main import leaves
from penstock.cli.output import EXIT_CODES

SECTION = "man1"
FURTHER_CODES = (
    (0, "done"),
    (1, "any other error"),
    (10, "plan: a job waits; sizing: no size that was tried reaches the goal"),
    (11, "plan: the start of a job is unknown"),
    (130, "interrupted: attach has left the job running, run has asked to cancel it"),
    (141, "nobody read the output to its end"),
)
"""Beside those of errors; `run`, `attach` and `exec` end with the program's own code."""
ENVIRONMENT = {
    "PENSTOCK_HOME": "Data folder of the server on this machine, unless --data names one.",
    "PENSTOCK_URL": "Address of a server elsewhere, unless --server or --data is given.",
    "PENSTOCK_TOKEN": "Token for that server, or another than your own for the one here.",
    "PENSTOCK_CA": "File with the authorities that its certificate is trusted by.",
    "NO_COLOR": "If set, nothing is coloured.",
}


def exit_codes() -> dict[int, str]:
    """Return what each exit code means, in their order: the codes of errors in JSON, or words."""
    errors: dict[int, list[str]] = {}
    for name, code in EXIT_CODES.items():
        errors.setdefault(code, []).append(name)
    found = {code: ", ".join(names) for code, names in errors.items() if code != 1}
    return dict(sorted((found | dict(FURTHER_CODES)).items()))


def write_pages(folder: Path) -> list[Path]:
    """Write all pages below a folder of manuals, in `man1`, and return them. Raises: OSError."""
    target = folder / SECTION
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in pages():
        path = target / f"{name}.1"
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name of each page, such as `penstock-money-bill`, and its roff."""
    found = dict(leaves())
    names = list(found)
    yield "penstock", _program(names)
    for name, command in found.items():
        yield _page_name(name), _command(name, command, names)


def _page_name(name: str) -> str:
    return f"penstock-{name.replace(' ', '-')}"


def _program(names: Sequence[str]) -> str:
    lines = [*_head("penstock", "pool accelerators, and schedule ML jobs on them"), ".SH SYNOPSIS"]
    lines += [".B penstock", "[--data DIR | --server URL] COMMAND [OPTIONS] [ARGUMENTS]", ".SH DESCRIPTION"]
    lines += [_text("Start here: penstock up, then penstock run -- echo hello.")]
    lines += [".PP", _text("Each command has a page of its own: man penstock-submit.")]
    for title, panel in PANELS.items():
        lines += [f".SS {_text(title)}"]
        for word, entry in panel.items():
            if not entry.hidden:
                below = [name for name in names if name.startswith(f"{word} ")]
                rest = f" ({', '.join(name.removeprefix(f'{word} ') for name in below)})" if below else ""
                lines += [".TP", f".B {_text(word)}", _text(entry.summary + rest)]
    return "\n".join([*lines, *_foot("", names)]) + "\n"


def _command(name: str, command: Any, names: Sequence[str]) -> str:
    context = command.make_context(f"penstock {name}", [], resilient_parsing=True)
    context.info_name = f"penstock {name}"
    lines = _head(_page_name(name), command.get_short_help_str(200).rstrip("."))
    usage = " ".join(command.collect_usage_pieces(context))
    lines += [".SH SYNOPSIS", f".B penstock {_text(name)}", _text(usage), ".SH DESCRIPTION"]
    lines += [_text(" ".join(command.help.split()))]
    for title, rows in sections(command, context).items():
        if rows:
            lines.append(f".SH {title.upper()}")
        for written, about in rows:
            lines += [".TP", f".B {_text(written)}", _text(about or "(no more is said of it)")]
    if examples := EXAMPLES.get(name):
        lines += [".SH EXAMPLES", ".nf", *(_text(line) for line in examples), ".fi"]
    return "\n".join([*lines, *_foot(name, names)]) + "\n"


def _head(page: str, about: str) -> list[str]:
    title = _text(page.upper())
    return [
        f'.TH "{title}" "1" "" "Penstock {__version__}" "Penstock"',
        ".SH NAME",
        f"{_text(page)} \\- {_text(about[:1].lower() + about[1:])}",
    ]


def _foot(name: str, names: Sequence[str]) -> list[str]:
    """Return the sections that end a page; without a name, that of the program."""
    lines = [".SH EXIT STATUS"]
    for code, meaning in exit_codes().items():
        lines += [".TP", f".B {code}", _text(meaning)]
    if name in ("run", "attach", "exec"):
        lines += [".PP", "It ends with the code of the job's program, or 128 and its signal."]
    lines.append(".SH ENVIRONMENT")
    for variable, about in ENVIRONMENT.items():
        lines += [".TP", f".B {variable}", _text(about)]
    group = name.partition(" ")[0]
    beside = [_page_name(other) for other in names if other != name and other.partition(" ")[0] == group]
    also = ["penstock", *beside] if name else ["penstock-up", "penstock-submit"]
    return [*lines, ".SH SEE ALSO", ", ".join(f"\\fB{_text(page)}\\fR(1)" for page in also)]


def _text(text: str) -> str:
    r"""Return a line of roff that prints as the text: no request, no escape, no hyphen that cannot be copied."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
