"""Rule of the generators: after restoring, the same numbers are drawn again."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.training import BadArgument, random_state, restore_random_state


def draw(own: random.Random, numpy_own: np.random.Generator) -> list[Any]:
    return [random.random(), own.gauss(0, 1), np.random.normal(), *numpy_own.normal(size=3)]


@given(st.integers(0, 2**32 - 1), st.integers(0, 5))
def test_the_same_numbers_are_drawn_again(seed: int, before: int) -> None:
    own, numpy_own = random.Random(seed), np.random.default_rng(seed)
    for _ in range(before):
        draw(own, numpy_own)
    state = random_state(own=own, numpy_own=numpy_own)
    first = draw(own, numpy_own)
    restore_random_state(state, own=own, numpy_own=numpy_own)
    assert draw(own, numpy_own) == first


def test_other_names_are_refused() -> None:
    with pytest.raises(BadArgument, match=r"for generators \['a'\]; expected the same, got \['b'\]"):
        restore_random_state(random_state(a=random.Random(1)), b=random.Random(1))


def test_other_objects_are_refused() -> None:
    with pytest.raises(BadArgument, match=r"generator 'a' is a int; expected random\.Random"):
        random_state(a=3)


def test_a_library_that_is_not_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    state = random_state()
    monkeypatch.delitem(sys.modules, "numpy")
    with pytest.raises(BadArgument, match="of numpy, which is not imported"):
        restore_random_state(state)
