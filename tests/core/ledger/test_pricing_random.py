"""What sessions cost, against a biller that goes second by second over random histories.

The short version is for CI; `PENSTOCK_HISTORIES=10000 pytest tests/core/ledger/test_pricing_random.py` is the long one.
"""

import os
import random
from fractions import Fraction

import pytest

from penstock.core.ledger.pricing import charges, micro_denominator
from tests.core.brute_biller import SECOND, brute_force, history, zone_of

HISTORIES = int(os.environ.get("PENSTOCK_HISTORIES", "200"))
BLOCKS = 8


def billed(held, tariff, months, from_s, until_s, losses, zone):
    found = charges(
        held,
        tariff,
        [m * SECOND for m in months],
        from_s * SECOND,
        until_s * SECOND,
        zone=zone_of(zone, months[0]),
        losses=losses,
    )
    return sum((Fraction(one.parts, micro_denominator(one.resource)) for one in found), Fraction(0))


@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_histories_cost_what_they_cost_second_by_second(block):
    for seed in range(block, HISTORIES, BLOCKS):
        given = history(random.Random(seed))
        assert billed(*given) == brute_force(*given), seed
