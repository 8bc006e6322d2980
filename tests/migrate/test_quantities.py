"""Quantities of other schedulers come out exactly, or not at all."""

from fractions import Fraction

import pytest

from penstock.migrate.quantities import (
    kubernetes_quantity,
    rounded_up,
    slurm_count,
    slurm_memory_bytes,
    slurm_time_ms,
    yunikorn_quantity,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8", 8),
        ("1500m", Fraction(3, 2)),
        ("64Gi", 64 * 2**30),
        ("500M", 500 * 10**6),
        ("1e3", 1000),
        ("1E3", 1000),
        ("2E", 2 * 10**18),
        ("0.5", Fraction(1, 2)),
        (".5Ki", 512),
        ("+3k", 3000),
        ("100n", Fraction(1, 10**7)),
    ],
)
def test_kubernetes_quantities_are_exact(text, number):
    if number > 2**60:
        with pytest.raises(ValueError, match="2E"):
            kubernetes_quantity(text)
    else:
        assert kubernetes_quantity(text) == number


@pytest.mark.parametrize("text", ["", "8 ", "-1", "1.2.3", "8x", "1e99", "K", "0x10", "٣", "1K"])
def test_what_kubernetes_refuses_is_refused(text):
    with pytest.raises(ValueError, match=r"^"):
        kubernetes_quantity(text)


def test_a_part_of_a_step_is_rounded_up_as_kubernetes_does():
    assert rounded_up(Fraction(1, 10**7), 1000) == 1
    assert rounded_up(Fraction(3, 2), 1000) == 1500


def test_yunikorn_knows_milli_of_vcores_only():
    assert yunikorn_quantity("500m", vcore=True) == Fraction(1, 2)
    assert yunikorn_quantity("10", vcore=True) == 10
    assert yunikorn_quantity("64 Gi") == 64 * 2**30
    assert yunikorn_quantity("2K") == 2000
    for wrong in ("500m", "1.5", "-3", "8x"):
        with pytest.raises(ValueError, match=r"^"):
            yunikorn_quantity(wrong)


def test_slurm_counts_memory_in_mebibytes():
    assert slurm_memory_bytes("1000") == 1000 * 2**20
    assert slurm_memory_bytes("1000G") == 1000 * 2**30
    assert slurm_memory_bytes("5gb") == 5 * 2**30
    assert slurm_count("2K") == 2048
    for wrong in ("1.5G", "G", "-1", "1X"):
        with pytest.raises(ValueError, match=r"^"):
            slurm_memory_bytes(wrong)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 300),
        ("5:30", 330),
        ("1:02:03", 3723),
        ("7-0", 604_800),
        ("1-12:30", 131_400),
        ("1-00:00:10", 86_410),
    ],
)
def test_slurm_times_have_six_forms(text, seconds):
    assert slurm_time_ms(text) == seconds * 1000


def test_a_time_without_end_is_none_and_nonsense_is_refused():
    assert slurm_time_ms("INFINITE") is None
    assert slurm_time_ms("unlimited") is None
    for wrong in ("", "1:2:3:4", "1d", "soon"):
        with pytest.raises(ValueError, match=r"^"):
            slurm_time_ms(wrong)
