"""Small changes of a Python file, each of which a test should notice: what `scripts/mutants.py` tries."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}  # fmt: skip
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}


class Mutant(NamedTuple):
    """One change of one file: the text from `start` to `end` (offsets in bytes) becomes `new`."""

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str
    lines: tuple[int, ...]
    """Those of the statement: a test that runs one of them may notice."""

    @property
    def package(self) -> str:
        return Path(self.path).parent.name

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {' '.join(self.old.split())}  ->  {' '.join(self.new.split())}"


def mutants_of(root: Path, path: str) -> list[Mutant]:
    """Return every mutant of a file's functions. Asserts, errors, annotations and what is outside functions stay."""
    text = (root / path).read_bytes()
    offsets = [0, *(i + 1 for i, byte in enumerate(text) if byte == ord("\n"))]
    found = []
    for statement in _statements(ast.parse(text)):
        inner = [n.lineno for n in ast.iter_child_nodes(statement) if isinstance(n, ast.stmt)]
        end_line = min(inner, default=(statement.end_lineno or 0) + 1)
        lines = tuple(range(statement.lineno, max(statement.lineno + 1, end_line)))
        for node, new in (change for own in _own_nodes(statement) for change in _changes(own)):
            start = offsets[node.lineno - 1] + node.col_offset
            end = offsets[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            found.append(Mutant(path, node.lineno, start, end, text[start:end].decode(), new, lines))
    return found


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements of all functions, each once."""
    seen: set[int] = set()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in (below for top in function.body for below in ast.walk(top)):
                skipped = isinstance(node, ast.Assert | ast.Raise | ast.FunctionDef)
                if isinstance(node, ast.stmt) and not skipped and id(node) not in seen:
                    seen.add(id(node))
                    yield node


def _own_nodes(statement: ast.stmt) -> Iterator[ast.expr | ast.stmt]:
    """Yield a statement and its expressions, without annotations, texts, checks, and the statements inside."""
    yield statement
    waiting: list[ast.AST] = list(ast.iter_child_nodes(statement))
    if isinstance(statement, ast.AnnAssign):
        waiting.remove(statement.annotation)
    while waiting:
        node = waiting.pop()
        checked = isinstance(node, ast.keyword) and node.arg == "strict"  # of `zip`: says what holds anyway
        if not checked and not isinstance(node, ast.stmt | ast.JoinedStr):
            waiting.extend(ast.iter_child_nodes(node))
            if isinstance(node, ast.expr):
                yield node


def _changes(node: ast.expr | ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield what may be changed at a node: it, or the condition in it, and what stands there instead."""
    match node:
        case ast.Compare(left, [op, *ops], [first, *rest]):
            yield node, _text(ast.Compare(left, [COMPARED[type(op)](), *ops], [first, *rest]))
            for last in ops[:1]:
                yield node, _text(ast.Compare(left, [op, COMPARED[type(last)](), *ops[1:]], [first, *rest]))
        case ast.BinOp(left, sign, right) if type(sign) in COMPUTED:
            yield node, _text(ast.BinOp(left, COMPUTED[type(sign)](), right))
        case ast.BoolOp(joint, values):
            yield node, _text(ast.BoolOp(ast.And() if isinstance(joint, ast.Or) else ast.Or(), values))
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield node, _text(operand)
        case ast.Constant(bool() as truth):
            yield node, str(not truth)
        case ast.Constant(int() as number):
            yield node, str(number + 1)
        case ast.Call(ast.Name(name), args, keywords) if name in CALLED:
            yield node, _text(ast.Call(ast.Name(CALLED[name]), args, keywords))
        case ast.If(test) | ast.IfExp(test) | ast.While(test) if isinstance(test, ast.Name | ast.Attribute | ast.Call):
            yield test, _text(ast.UnaryOp(ast.Not(), test))
        case ast.AugAssign(target, sign, value) if type(sign) in COMPUTED:
            yield node, ast.unparse(ast.AugAssign(target, COMPUTED[type(sign)](), value))
        case ast.Expr(ast.Call()):
            yield node, "pass"
        case ast.Break():
            yield node, "continue"
        case ast.Continue():
            yield node, "break"


def _text(node: ast.expr) -> str:
    return f"({ast.unparse(ast.fix_missing_locations(node))})"
