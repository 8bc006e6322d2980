"""Checks that no former name of a glossary word is used again: a word means one thing everywhere.

Looks at the names of modules, classes, functions, arguments and attributes; CONTRIBUTING.md says what the words mean.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FORMER = {
    "Ahead": "Reservations",
    "Board": "Workspace",
    "Brain": "AgentState",
    "Claimant": "PreemptionRights",
    "Cursor": "ClassCursor",
    "Derived": "Indexes",
    "Foresight": "EstimateService",
    "FreeCluster": "ClusterIndex",
    "JobOrder": "JobQueue",
    "Lone": "SingleJobPlanner",
    "NodeFree": "NodeCapacity",
    "QuotaBlock": "QuotaExceeded",
    "Seer": "EstimateProcess",
    "Shadows": "Holds",
    "Till": "CostMeter",
    "Treasurer": "BillingService",
    "Wish": "BorderAction",
    "board": "workspace",
    "brain": "agent_state",
    "claimant": "rights",
    "derived": "indexes",
    "planted": "nothing: planted bugs are patches of the simulator",
    "treasurer": "billing",
    "waves": "bulk",
}
ALLOWED = {"planted": "src/penstock/sim/", "derived": "src/penstock/report/"}


def _names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Attribute():
                yield node.attr, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno


def main() -> None:
    found = []
    for path in sorted(Path("src").rglob("*.py")):
        names = _names(ast.parse(path.read_text(encoding="utf-8")))
        names_and_file = [*names, (path.stem, 1)]
        for name, line in names_and_file:
            plain = name.lstrip("_")
            if plain in FORMER and not str(path).startswith(ALLOWED.get(plain, "-")):
                found.append(f"{path}:{line}: {name} is a former name; now {FORMER[plain]}")
    print("\n".join(found) or "words: ok")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
