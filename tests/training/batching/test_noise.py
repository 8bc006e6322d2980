"""The noise scale comes out of norms of gradients as it went in; AdaScale's gain lies between 1 and the scale."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.training.batching.noise import LEAST, NoiseScale


def known(noise: float, *, norm: float = 1.0, batch: int = 64) -> NoiseScale:
    """Return what exact measurements of this noise scale make known."""
    found = NoiseScale()
    for _ in range(LEAST):
        small_sq, big_sq = (norm * (1 + noise / size) for size in (batch // 4, batch))
        found.add(small=batch // 4, small_sq=small_sq, big=batch, big_sq=big_sq)
    return found


@given(st.floats(1, 6000), st.floats(1e-6, 1e6))
def test_exact_norms_give_the_exact_scale_at_any_size_of_gradients(noise: float, norm: float) -> None:
    assert known(noise, norm=norm).samples == pytest.approx(noise, rel=1e-6)


def test_noisy_norms_give_it_without_bias() -> None:
    draw = np.random.default_rng(5)
    true = draw.standard_normal(50)
    true *= 1 / np.linalg.norm(true)
    sigma, small, parts = 4.0, 8, 4  # tr(Sigma) = 50 * 16
    found = NoiseScale()
    for _ in range(400):
        gradients = true + sigma / math.sqrt(small) * draw.standard_normal((parts, 50))
        whole = gradients.mean(axis=0)
        found.add(
            small=small, small_sq=float((gradients**2).sum(axis=1).mean()), big=small * parts, big_sq=whole @ whole
        )
    assert found.trace / found.weight == pytest.approx(800, rel=0.05)
    assert found.norm / found.weight == pytest.approx(1, abs=0.8)


def test_nothing_is_told_before_enough_is_known_and_strange_numbers_do_not_count() -> None:
    found = NoiseScale()
    for bad in (math.nan, math.inf, 1e308):
        assert not found.add(small=1, small_sq=bad, big=2, big_sq=-1e308 if bad == 1e308 else 1.0)
    assert not found.add(small=2, small_sq=1.0, big=2, big_sq=1.0)
    assert (found.count, found.samples, found.gain(4, 64)) == (0, 0.0, 1.0)


def test_where_noise_hides_the_gradient_a_hundred_batches_are_told_at_most() -> None:
    found = NoiseScale()
    for _ in range(LEAST):
        found.add(small=16, small_sq=1 / 16, big=64, big_sq=1 / 64)
    assert found.samples == pytest.approx(6400)


@given(st.floats(0.1, 5000), st.floats(1, 64))
def test_the_gain_is_the_scale_times_the_efficiency(noise: float, scale: float) -> None:
    gain = known(noise).gain(scale, 32)
    efficiency = (noise + 32) / (noise + 32 * scale)
    assert gain == pytest.approx(scale * efficiency, rel=1e-6)
    assert 1 - 1e-9 <= gain <= scale + 1e-9


def test_what_is_saved_continues() -> None:
    one, other = known(500), NoiseScale()
    other.load(one.state())
    assert other == one
