"""Refuses starts that would run files of the folder where somebody is: part of `make lint`.

`python -m` and `python -c` look for modules in the working directory, unless `-P` or `-I` stands before them; in `src`
every start of a program names the folder that it works in, and programs are looked up by `penstock.starts.tool`.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("src", "examples", "bench", "scripts")
PRODUCT = "src"
SAFE = frozenset("PI")
STARTERS = frozenset({"run", "Popen", "call", "check_call", "check_output", "create_subprocess_exec"})
FREE = frozenset({"os.system", "os.popen", "os.posix_spawnp", "subprocess.getoutput", "create_subprocess_shell"})
"""Ways to start a program that leave it to a shell or to PATH which one."""
MODULES = ("subprocess", "os", "asyncio", "asyncio.subprocess")
FAMILIES = ("exec", "spawn", "posix_spawn")
LOOKS_UP = "src/penstock/starts.py"
"""The one place that asks PATH."""


def unsafe(path: Path) -> list[str]:
    """Return what is wrong with the starts in a file, with the line of each."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.List | ast.Tuple) and (option := _looks_around(node.elts)):
            found.append((node.lineno, f"'{option}' needs -P or -I before it"))
        if isinstance(node, ast.Call):
            starts = ast.unparse(node.func).startswith(tuple(f"os.{family}" for family in FAMILIES))
            if starts and (option := _looks_around(node.args)):
                found.append((node.lineno, f"'{option}' needs -P or -I before it"))
            found += [(node.lineno, text) for text in _in_product(node, path)]
        if isinstance(node, ast.ImportFrom):
            found += [(node.lineno, text) for text in _imported(node, path)]
    return [f"{path}:{line}: {text}" for line, text in sorted(found)]


def _looks_around(words: list[ast.expr]) -> str:
    """Return the option of a start of Python by which it looks around in its folder, or ''."""
    if not words or not _is_python(words[0]):
        return ""
    for word in words[1:] if not _text(words[0]).startswith("-") else words:
        text = _text(word)
        if text.startswith("-") and not text.startswith("--"):
            if SAFE & set(text):
                return ""
            if text[-1:] == "m" or (text[-1:] == "c" and _is_surely_python(words[0])):
                return text
    return ""


def _is_python(word: ast.expr) -> bool:
    """Return whether a start may be one of Python: anything but the name of another program."""
    text = _text(word)
    return not text or text.startswith("-") or "python" in text


def _is_surely_python(word: ast.expr) -> bool:
    """Return whether it names Python: other programs have a `-c`, too."""
    return "python" in _text(word) or "executable" in ast.unparse(word)


def _text(word: ast.expr) -> str:
    return word.value if isinstance(word, ast.Constant) and isinstance(word.value, str) else ""


def _imported(node: ast.ImportFrom, path: Path) -> Iterator[str]:
    """Yield starters that are imported by name: where one is called it would not be known for what it is."""
    if path.parts[0] != PRODUCT or node.module not in MODULES:
        return
    for name in (each.name for each in node.names):
        if name in STARTERS or name.startswith(FAMILIES) or {f"{node.module}.{name}", name} & FREE:
            yield f"{name} is imported by name: write {node.module}.{name}"


def _in_product(call: ast.Call, path: Path) -> Iterator[str]:
    if path.parts[0] != PRODUCT:
        return
    name = ast.unparse(call.func)
    last = name.rpartition(".")[2]
    named = {keyword.arg for keyword in call.keywords}
    if name in FREE or last in FREE:
        yield f"{name} leaves it to others which program starts"
    elif name.startswith(("subprocess.", "asyncio.create_subprocess")) and last in STARTERS and "cwd" not in named:
        yield f"{name} names no cwd"
    elif last == "which" and str(path) != LOOKS_UP:
        yield f"{name} may find a program in a relative folder of PATH: use starts.tool"


def main(folders: tuple[str, ...] = FOLDERS) -> None:
    files = [path for folder in folders for path in sorted(Path(folder).rglob("*.py"))]
    findings = [text for path in files for text in unsafe(path)]
    print("\n".join(findings) or "starts: ok")
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
