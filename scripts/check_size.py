"""Keeps files and functions small: part of `make lint`. The limits may only ever go down."""

import ast
import sys
from pathlib import Path

FILE_LINES_MAX = 450
FUNCTION_LINES_MAX = 60


def too_long(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    found = []
    if text.count("\n") > FILE_LINES_MAX:
        found.append(f"{path}: {text.count(chr(10))} lines, at most {FILE_LINES_MAX}")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                found.append(f"{path}:{node.lineno}: {node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}")
    return found


def main() -> None:
    findings = [text for path in sorted(Path("src").rglob("*.py")) for text in too_long(path)]
    print("\n".join(findings) or "sizes: ok")
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
