"""Codes of errors: each that can be answered is in the table."""

import ast
from collections.abc import Iterator
from pathlib import Path

import penstock
from penstock.control.inbox import InboxFull
from penstock.core.model.errors import PenstockError, StoreError
from penstock.security.vault import VaultError
from penstock.server.http.responses import ERROR_CODES

SOURCES = Path(penstock.__file__).parent
ROOMS = ("server", "control", "core/lifecycle", "core/messages", "sim/forecast")
MADE_BY = ("ApiError", "Refusal", "RequestFailed")
"""What makes an error: its code is the first argument."""


def codes() -> Iterator[tuple[str, str]]:
    """Yield every code that stands in the sources, with its file."""
    for room in ROOMS:
        for path in sorted((SOURCES / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                is_error = isinstance(node, ast.Call) and _name(node.func) in MADE_BY and node.args
                if is_error and isinstance(node.args[0], ast.Constant):
                    yield node.args[0].value, str(path)


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _below(kind: type[PenstockError]) -> Iterator[type[PenstockError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _below(one)


def test_every_code_that_is_raised_is_in_the_table():
    found = dict(codes())
    assert len(found) > 10, "the search finds them"
    assert {code: file for code, file in found.items() if code not in ERROR_CODES} == {}


def test_every_error_of_the_store_and_the_inbox_that_is_answered_is_in_the_table():
    passed_on = {one.code for root in (StoreError, InboxFull, VaultError) for one in _below(root)}
    assert passed_on - ERROR_CODES.keys() - {"not_empty"} == set()  # of a copy into a store that has a log


def test_every_code_says_what_it_means_and_what_to_do():
    assert all(400 <= one.status < 600 and one.meaning and one.next_step for one in ERROR_CODES.values())
