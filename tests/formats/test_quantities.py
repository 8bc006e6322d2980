"""Quantities of other schedulers come out exactly, or not at all."""

from fractions import Fraction

import pytest

from penstock.formats.quantities import kubernetes_quantity, rounded_up, yunikorn_quantity


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
