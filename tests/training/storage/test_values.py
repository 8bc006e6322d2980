"""Rules of the state format: what goes in comes out, and what cannot is named."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from penstock.training.errors import UnsavableValue
from penstock.training.storage.values import decode_state, encode_state


def through_files(state: dict[str, Any]) -> dict[str, Any]:
    files: dict[str, bytes] = {}
    for piece in encode_state(state):
        assert piece.name not in files
        files[piece.name] = b"".join(piece.windows())
        assert len(files[piece.name]) == piece.size_bytes
    return decode_state(lambda name: memoryview(bytearray(files[name])))


def same(left: Any, right: Any) -> bool:
    """Equal in value and type, NaN equal to itself, arrays bit for bit."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray | np.generic):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return repr(left) == repr(right)


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5)
array = arrays.arrays(
    st.sampled_from(["f4", "f8", "i8", "u1", "?", "c16", "<U3"]), arrays.array_shapes(min_dims=0, min_side=0)
)
values = st.recursive(
    plain | array,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.sampled_from(["$array", "$"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), values, max_size=4))
def test_what_goes_in_comes_out(state: dict[str, Any]) -> None:
    assert same(through_files(state), state)


@pytest.mark.parametrize(
    "value",
    [np.float64("nan"), np.float32(1.5), np.int64(7), np.bool_(True), np.asfortranarray(np.eye(3, 2)), 10**400],
    ids=repr,
)
def test_types_that_look_like_others_come_back_exactly(value: Any) -> None:
    assert same(through_files({"value": value}), {"value": value})


@pytest.mark.parametrize("huge", [2**2048 - 1, -(2**2048), 10**5000, -(10**5000)], ids=["last", "first", "+", "-"])
def test_integers_of_any_length_come_back_as_values_and_as_keys(huge: int) -> None:
    state = {"value": huge, "keys": {huge: np.zeros(9000), huge + 1: [huge]}}
    found = through_files(state)
    assert (found["value"], list(found["keys"]), found["keys"][huge + 1]) == (huge, [huge, huge + 1], [huge])
    assert np.array_equal(found["keys"][huge], np.zeros(9000))


def test_a_value_beside_a_huge_key_that_cannot_be_saved_is_named() -> None:
    with pytest.raises(UnsavableValue, match=r"state\['a'\]\['0x1000+'\] is a builtins.set"):
        encode_state({"a": {2**4096: {1}}})


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": {"b": {1, 2}}}, r"state\['a'\]\['b'\] is a builtins.set; expected"),
        ({"a": np.array([{}], dtype=object)}, r"state\['a'\] is a NumPy array of dtype object"),
        ({"a": np.ma.masked_array([1], [True])}, r"state\['a'\] is a numpy.*MaskedArray"),
        ({"a": {1.5: 0}}, r"state\['a'\] has a key of type float \(1.5\); expected str or int"),
        ({"a": collections.namedtuple("Pair", "x")(1)}, r"state\['a'\] is a .*Pair"),
        ([1], "the state is a list; expected a dict"),
    ],
)
def test_what_cannot_be_saved_is_named_with_its_place(state: Any, message: str) -> None:
    with pytest.raises(UnsavableValue, match=message):
        encode_state(state)


def test_a_state_that_holds_itself_is_refused() -> None:
    state: dict[str, Any] = {}
    state["self"] = state
    with pytest.raises(UnsavableValue, match=r"nested deeper than 64 .* does it hold itself"):
        encode_state(state)
