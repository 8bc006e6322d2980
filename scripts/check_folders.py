"""Refuses operations by path in modules that touch what accounts own: part of `make lint`.

Who owns a folder may rename what is in it at any moment. So root reaches what an account owns by
`penstock.engines.processes.account_files` alone (docs/security.md, "Who owns what on a node"). What these modules do
by path in folders of root's own says so: `# root's: REASON` in its line or above it, in the line of its function, or in
a line of its own for a module.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ENGINES = Path("src/penstock/engines")
MODULES = (
    *("agent/environments", "agent/inputs", "agent/kept", "agent/preparing", "agent/setting_up", "agent/unpacked"),
    *("agent/unpacking", "containers/images", "containers/keeper", "containers/roots", "containers/source_mounts"),
    "containers/start",
    *("processes/accounts", "processes/batches", "processes/jobfolders", "processes/outputs", "processes/progress"),
    *("processes/reportfiles", "processes/spawn", "slurm/passing/listening", "slurm/passing/spool"),
    "slurm/passing/submitting",
)
FUNCTIONS = re.compile(
    r"open|write_whole|open_own|shutil\.\w+|os\.path\.(?:exists|isdir|isfile|realpath)|os\.(?:open|chmod|chown|mkdir|makedirs|"
    r"rename|replace|unlink|remove|rmdir|listdir|scandir|walk|stat|lstat|link|symlink|truncate|readlink|mkfifo)"
)
METHODS = re.compile(
    r"\.(?:chmod|exists|glob|is_dir|is_file|iterdir|lstat|mkdir|read_bytes|read_text|rename|resolve|rglob|rmdir|stat|"
    r"symlink_to|touch|unlink|write_bytes|write_text)$"
)
BY_DESCRIPTOR = frozenset({"dir_fd", "src_dir_fd"})
MARK = "# root's:"


def by_path(text: str) -> Iterator[tuple[int, str]]:
    """Yield the operations by path that a module does not explain, with their lines."""
    lines, tree = text.split("\n"), ast.parse(text)
    if any(line.startswith(MARK) for line in lines):
        return
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and MARK in lines[node.lineno - 1]
    ]
    explained = {id(inner) for function in functions for inner in ast.walk(function)}
    for node in ast.walk(tree):
        if (
            id(node) in explained
            or not isinstance(node, ast.Call)
            or BY_DESCRIPTOR & {word.arg for word in node.keywords}
        ):
            continue
        name = ast.unparse(node.func)
        if not FUNCTIONS.fullmatch(name) and (not METHODS.search(name) or name.startswith(("os.", "account_files."))):
            continue
        above = [line for line in lines[node.lineno - 2 : node.lineno - 1] if line.lstrip().startswith(MARK)]
        if not any(MARK in line for line in [*above, *lines[node.lineno - 1 : node.end_lineno]]):
            yield node.lineno, name


def main() -> int:
    found = [
        f"{path}:{line}: {name} goes by path: use account_files, or say with '{MARK} WHY' whose folder it is"
        for path in (ENGINES / f"{module}.py" for module in MODULES)
        for line, name in sorted(by_path(path.read_text(encoding="utf-8")))
    ]
    print("\n".join(found), end="\n" * bool(found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
