"""Copies in long runs: every content is where it is said to be, and nothing is read that may not be there."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.training.storage import copying as runs
from penstock.training.storage.contents import NumpyContent
from tests.properties import examples
from tests.training.needs import need

PAGE = mmap.PAGESIZE
SOURCE = np.random.default_rng(0).integers(0, 256, 40 * PAGE, dtype=np.uint8)
views = st.tuples(st.integers(0, 30 * PAGE), st.integers(0, 10 * PAGE), st.integers(1, 3))


@examples(100)
@given(st.lists(views, max_size=8), st.integers(1, 3 * PAGE), st.integers(PAGE, 20 * PAGE))
def test_contents_that_overlap_touch_or_lie_apart_are_all_copied(chosen: Any, join_min: int, part: int) -> None:
    contents = [NumpyContent(SOURCE[first : first + size : stride]) for first, size, stride in chosen]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "JOIN_MIN_BYTES", join_min)
        patch.setattr(runs, "PART_BYTES", part)
        patch.setattr(runs, "SMALL_BYTES", 1)
        room = bytearray(runs.room_bytes([content.size_bytes for content in contents]))
        places = runs.copy(contents, memoryview(room))
    assert [bytes(place) for place in places] == [content.array.tobytes() for content in contents]


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 10), (2 * PAGE - 1, 2 * PAGE + 5)], [(0, 2 * PAGE + 5)]),
        ([(0, PAGE), (2 * PAGE, 3 * PAGE)], [(0, PAGE), (2 * PAGE, 3 * PAGE)]),
        ([(0, PAGE + 1), (2 * PAGE, 3 * PAGE)], [(0, 3 * PAGE)]),
        ([(PAGE, 2 * PAGE), (0, 9 * PAGE), (10 * PAGE - 1, 10 * PAGE)], [(0, 10 * PAGE)]),
    ],
    ids=["next page", "a page of nobody's between", "in the same page", "within another"],
)
def test_only_what_lies_in_pages_of_the_contents_is_read(spans: Any, expected: Any) -> None:
    found = runs.joined([(*span, number) for number, span in enumerate(spans)])
    assert [run[:2] for run in found] == expected


def test_tensors_that_lie_side_by_side_are_copied_together(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = need("torch")
    from penstock.training.torch import TensorContent

    whole = torch.arange(2**20, dtype=torch.float32)
    moved: list[int] = []
    real = runs._move
    monkeypatch.setattr(runs, "_move", lambda address, target: (moved.append(len(target)), real(address, target)))
    contents = [TensorContent(part) for part in (whole[: 2**19], whole[2**19 :])]
    places = runs.copy(contents, memoryview(bytearray(2**22 + 4 * PAGE)))
    assert moved == [2**22]
    assert b"".join(places) == whole.numpy().tobytes()
