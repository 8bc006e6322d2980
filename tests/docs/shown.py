"""The commands that a page shows: lines of its blocks, as they are typed, and mentions in its text."""

import re
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock.cli.commands import GROUPS
from penstock.cli.main import load

PLAIN_WORD = re.compile(r"[a-z][a-z_-]*$")
ASSIGNMENT = re.compile(r"[A-Z_]+=")
ENDS = {"|", "||", ">", ">>", "<", "<<<", "&&", ";", "&", "2>", "2>>"}
BEFORE = {"$", "&&", "||", "|", ";", "sudo", "exec", "nohup", "time", "if", "do", "then", "!"}


class Shown(NamedTuple):
    """One `penstock ...` of a page."""

    line: int
    words: tuple[str, ...]
    """Without `penstock` itself."""
    typed: bool
    """In a block, with all it needs; a mention may leave arguments out, and say `a|b` or `[--option]`."""

    def __str__(self) -> str:
        return f"line {self.line}: penstock {' '.join(self.words)}"


def shown(markdown: str) -> list[Shown]:
    """Return the commands of a page, in the order of their lines."""
    lines = markdown.split("\n")
    fenced, prose, found = False, list(lines), []
    for at, line in enumerate(lines):
        if line.lstrip().startswith("```"):
            fenced, prose[at] = not fenced, ""
        elif fenced or line.startswith("    "):
            prose[at] = ""
            found += [Shown(at + 1, words, typed=True) for words in _typed(_joined(lines, at))]
    for span in re.finditer(r"(?<!`)`(penstock [^`]+)`", "\n".join(prose)):
        line = "\n".join(prose)[: span.start()].count("\n") + 1
        for words in _mentioned(span[1]):
            found.append(Shown(line, words, typed=False))
    return sorted(found)


def _joined(lines: list[str], at: int) -> str:
    """Return a line with those that continue it; nothing for one that continues another."""
    if at and lines[at - 1].rstrip().endswith("\\"):
        return ""
    text = lines[at].strip()
    while text.endswith("\\"):
        at += 1
        text = f"{text[:-1]} {lines[at].strip()}"
    return text


def _typed(line: str) -> Iterator[tuple[str, ...]]:
    try:
        words = _split(line)
    except ValueError:  # an apostrophe: text, no command
        return
    start = True
    for at, word in enumerate(words):
        if word == "penstock" and start:
            end = next((to for to in range(at + 1, len(words)) if words[to] in ENDS), len(words))
            yield tuple(words[at + 1 : end])
        start = word in BEFORE or (start and ASSIGNMENT.match(word) is not None)


def _split(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = ""
    words = []
    for word in lexer:
        if word.startswith("#"):
            break
        words.append(word)
    return words


def _mentioned(text: str) -> Iterator[tuple[str, ...]]:
    """Yield a mention once for each of its `a|b` among the words of commands; brackets say what may be left out."""
    text = re.sub(r"\\\|", "|", " ".join(text.split()))
    text = re.split(r" (?:\||>|&&|<) ", text)[0]
    if not re.match(r"penstock [a-z-]", text):  # the name of a process, an address
        return
    words = text.replace("[", " ").replace("]", " ").split()[1:]
    for at, word in enumerate(words):
        if "|" in word and not word.startswith("-") and all(map(PLAIN_WORD.match, word.split("|"))):
            for one in word.split("|"):
                yield (*words[:at], one, *words[at + 1 :])
            return
    yield tuple(each for word in words for each in (word.split("|") if word.startswith("-") else [word]))


def wrong(command: Shown) -> str:
    """Return what the program has to say against a command, or nothing."""
    words = list(command.words)
    while words and words[0] in ("--data", "--server"):
        del words[:2]
    if not words or words[0].startswith("-"):
        return (
            "" if all(word in ("--help", "--version", "-h") for word in words) else f"no option {words[0]} of penstock"
        )
    name = words.pop(0)
    try:
        if name in GROUPS and words:
            name = f"{name} {words.pop(0)}"
        loaded = load(name)
    except KeyError:
        return f"there is no command {name}"
    members = getattr(loaded, "commands", {})
    if members and words:
        if words[0] not in members:
            return f"{name} has no {words[0]}"
        loaded = members[words.pop(0)]
        members = {}
    if members or "--help" in words:
        return ""
    return _against(loaded, words, typed=command.typed)


def _against(command: Any, words: list[str], *, typed: bool) -> str:
    context = command.make_context(command.name, [], resilient_parsing=True)
    context.resilient_parsing = False  # it was for making a context without words; the words are to be judged
    if not typed:
        known = {name for one in command.get_params(context) for name in (*one.opts, *one.secondary_opts)}
        own = words[: words.index("--") if "--" in words else None]
        named = [word.partition("=")[0] for word in own if re.match(r"--?[a-zA-Z]", word)]
        return ", ".join(f"no option {one}" for one in named if one not in known)
    try:
        values, rest, _ = command.make_parser(context).parse_args(args=words)
    except Exception as error:  # noqa: BLE001 - of the parser, which typer does not export
        return str(getattr(error, "message", error) or type(error).__name__)
    missing = [p.name for p in command.get_params(context) if p.required and values.get(p.name) in (None, ())]
    return ", ".join([*(f"{name} is missing" for name in missing), *(f"{word} is too much" for word in rest)])
