"""A biller that knows nothing of the one under test: it looks at each second of a random history by itself.

A second belongs to one price, one factor and (but for those in which a tier is reached, which are looked at
millisecond by millisecond) to one tier. Seconds that are alike are counted, then multiplied as whole numbers.
"""

from collections import Counter
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np

from penstock.control.calendar import offsets
from penstock.core.ledger.pricing import GIB
from penstock.core.ledger.sessions import Amounts, Loss, UsageInterval
from penstock.core.model.prices import HOUR_MS, Factor, Price, Tariff, Terms, Window

HOUR, SECOND = HOUR_MS, 1_000
MODELS = ("A100", "T4", "H100")
BEGINS = [
    round(datetime(*moment, tzinfo=UTC).timestamp())
    for moment in ((2026, 3, 29), (2026, 10, 25), (2026, 11, 1, 5), (2026, 12, 31, 22))
]
"""An hour before the clock goes ahead and back in Berlin, and back in New York; before a year."""
ZONES = ("Europe/Berlin", "Europe/Berlin", "America/New_York", "Asia/Kolkata")
SPAN_S = 60_000
"""No history is longer."""


@cache
def local_clock(zone, begin_s):
    """Return day of the week and minute of the day for each minute from `begin_s` on."""
    start = datetime.fromtimestamp(begin_s, ZoneInfo(zone))
    moments = [(start.astimezone(UTC) + timedelta(minutes=m)).astimezone(start.tzinfo) for m in range(SPAN_S // 60)]
    return np.array([(m.weekday(), m.hour * 60 + m.minute) for m in moments])


@cache
def zone_of(zone, begin_s):
    return offsets(zone, begin_s * SECOND, (begin_s + SPAN_S) * SECOND)


def _terms(rng, end_s, begin_s, at_s):
    tiers = tuple(zip(sorted(rng.sample(range(1, 12), rng.randint(0, 3))), (900, 800, 700), strict=False))
    windows = tuple(
        Window(rng.randrange(1440), rng.randrange(1, 1441), tuple(sorted(rng.sample(range(7), rng.randint(3, 7)))))
        for _ in range(rng.randint(0, 2))
    )
    factors = rng.choice(
        (
            (),
            (Factor(1250, 900), Factor(700, preemptible=True)),
            (Factor(500, preemptible=True, windows=windows), Factor(1100, 400)),
            (Factor(300, windows=windows),),
        )
    )
    reading = rng.choice(("marginal", "marginal", "whole"))
    from_ms = (begin_s + at_s) * SECOND if at_s else 0
    return Terms(from_ms, tiers, reading, factors, rng.choice((0, 60_000, 90_000)))


def history(rng):
    """Return sessions, a tariff, months, from, until, losses and zone; whole seconds over some hours."""
    begin_s, zone = rng.choice(BEGINS), rng.choice(ZONES)
    end_s = rng.choice((600, 7_200, 20_000))
    held, losses = [], {}
    for job in range(rng.randint(1, 7)):
        parts = _hold(rng, job, begin_s, end_s)
        held += parts
        if parts[-1].end_ms and rng.random() < 0.3:
            lost_ms = rng.randrange(parts[0].start_ms // SECOND, parts[-1].end_ms // SECOND + 1) * SECOND
            losses[job, 1] = Loss(lost_ms, parts[-1].end_ms + rng.choice((0, 1, 30, 3000)) * SECOND)
    prices = [
        Price(
            rng.choice(("device", "device", "cpu", "memory")),
            rng.choice((0, 1, 999_999, 12_345_678)),
            rng.choice((0, 0, begin_s + rng.randrange(end_s))) * SECOND,
            rng.choice(("", *MODELS)),
        )
        for _ in range(rng.randint(1, 6))
    ]
    prices = [p if p.resource == "device" else Price(p.resource, p.micro_per_hour, p.from_ms) for p in prices]
    first = _terms(rng, end_s, begin_s, 0)
    later = [
        _terms(rng, end_s, begin_s, at_s) for at_s in sorted(rng.sample(range(1, end_s), rng.choice((0, 0, 1, 2))))
    ]
    tariff = Tariff(tuple(prices), first.tiers, first.tier_reading, first.factors, first.minimum_ms, tuple(later))
    months = [begin_s, *sorted(begin_s + s for s in rng.sample(range(1, 2 * end_s), rng.randint(0, 2)))]
    until_s = begin_s + rng.choice((end_s, 2 * end_s, 10))
    from_s = rng.choice((begin_s, *(m for m in months if m < until_s)))
    return held, tariff, months, from_s, until_s, losses, zone


def _hold(rng, job, begin_s, end_s):
    parts, at_s = [], begin_s + rng.randrange(end_s)
    priority, preemptible = rng.choice((100, 500, 1000)), rng.random() < 0.5
    for part in range(rng.choice((1, 1, 1, 3))):
        last_s = at_s + rng.choice((0, 1, 30, 59, 60, 61, rng.randrange(1, min(end_s, 18_000))))
        lasts = rng.random() < 0.15
        devices = rng.choice((0, 1, 1, 3, 7)) if part != 1 else 0
        amounts = Amounts(
            ((rng.choice(MODELS), rng.choice((1000, 1000, 250)) * devices),) if devices else (),
            rng.choice((0, 1000, 5000)),
            rng.choice((0, 2)) * GIB,
        )
        end_ms = 0 if lasts else last_s * SECOND
        parts.append(
            UsageInterval(
                job, 1, 0, "t", "ann", "q", "p", "n", amounts, at_s * SECOND, end_ms, priority=priority,
                preemptible=preemptible,
            )
        )  # fmt: skip
        at_s = last_s
        if lasts:
            break
    return parts


def brute_force(held, tariff, months, from_s, until_s, losses, zone):
    """Return what it all costs, in millionths of the currency, exactly."""
    begin_s = months[0]
    seconds = np.arange(begin_s, min(until_s, begin_s + SPAN_S))
    on = _held_in(held, tariff, seconds, until_s)
    tiers, reached = _tiers(held, on, tariff, months, seconds)
    clock = np.repeat(local_clock(zone, begin_s), 60, axis=0)[: len(seconds)]
    total = Fraction(0)
    for one, there in zip(held, on, strict=True):
        sign = (there & (seconds >= from_s)).astype(int)
        loss = losses.get((one.job_id, 1))
        if loss is not None and loss.at_ms < until_s * SECOND:
            known = np.maximum(seconds * SECOND, loss.at_ms)
            sign -= there & (seconds * SECOND >= loss.from_ms) & (known >= from_s * SECOND)
        factors = _factors(one, tariff, seconds, clock)
        for resource, model, amount in _amounts(one):
            prices = np.array(_prices(tariff.prices, resource, model, seconds))
            ones = np.full(len(seconds), 1000)
            rates = tiers if resource == "device" else ones
            whole = sign if resource != "device" else np.where(reached, 0, sign)
            for (price, tier, factor), count in _counted(prices, rates, factors, whole).items():
                total += amount * Fraction(count * SECOND * price * tier * factor, HOUR * 1_000_000)
            if resource == "device":
                for second in np.flatnonzero(reached & (sign != 0)):
                    for tier, ms in reached_tiers(on, held, tariff, months, seconds, second).items():
                        parts = int(sign[second]) * ms * int(prices[second]) * tier * int(factors[second])
                        total += amount * Fraction(parts, HOUR * 1_000_000)
    return total


def _counted(prices, tiers, factors, sign):
    found = Counter()
    rows = np.stack([prices, tiers, factors, sign])[:, sign != 0]
    for row, count in _unique(rows):
        found[tuple(int(v) for v in row[:3])] += int(row[3]) * int(count)
    return found


def _unique(rows):
    values, counts = np.unique(rows.T, axis=0, return_counts=True)
    return zip(values, counts, strict=True)


def _amounts(one):
    for model, milli in one.amounts.models:
        yield "device", model, Fraction(milli, 1000)
    yield "cpu", "", Fraction(one.amounts.cpu_milli, 1000)
    yield "memory", "", Fraction(one.amounts.memory_bytes, GIB)


def _terms_at(tariff, at_ms):
    found = (tariff.tiers, tariff.tier_reading, tariff.factors, tariff.minimum_ms)
    for later in tariff.later:
        if later.from_ms <= at_ms:
            found = (later.tiers, later.tier_reading, later.factors, later.minimum_ms)
    return found


def _held_in(held, tariff, seconds, until_s):
    """Return for each session in which seconds it is billed."""
    holds = {}
    for at, one in enumerate(held):
        holds.setdefault(one.job_id, []).append(at)
    on = np.zeros((len(held), len(seconds)), dtype=bool)
    for parts in holds.values():
        first_ms = held[parts[0]].start_ms
        minimum_ms = _terms_at(tariff, first_ms)[3]
        for at in parts:
            one = held[at]
            end_s = one.end_ms // SECOND if one.end_ms else until_s
            if at == parts[-1] and one.end_ms:
                end_s = max(end_s, (first_ms + minimum_ms) // SECOND)
            on[at] = (seconds >= one.start_ms // SECOND) & (seconds < end_s)
    return on


def _rate(tiers, used):
    return [1000, *(milli for hours, milli in tiers if used >= hours * HOUR * 1000)][-1]


def _tiers(held, on, tariff, months, seconds):
    """Return the tier of each second, and in which seconds a tier is reached."""
    rate = np.array([one.amounts.device_milli for one in held]) @ on
    month_of = np.searchsorted(months, seconds, side="right") - 1
    found, reached = np.zeros(len(seconds), dtype=int), np.zeros(len(seconds), dtype=bool)
    for month, begin_s in enumerate(months):
        of = np.flatnonzero(month_of == month)
        if not len(of):
            continue
        tiers, reading, _, _ = _terms_at(tariff, begin_s * SECOND)
        used = np.cumsum(rate[of]) * SECOND
        if reading == "whole":
            found[of] = _rate(tiers, int(used[-1]))
            continue
        before = used - rate[of] * SECOND
        last = before + rate[of] * 999
        for hours, milli in tiers:
            found[of[before >= hours * HOUR * 1000]] = milli
            reached[of[(before < hours * HOUR * 1000) & (last >= hours * HOUR * 1000)]] = True
        found[of[before < (tiers[0][0] * HOUR * 1000 if tiers else 0)]] = 1000
        if not tiers:
            found[of] = 1000
    return found, reached


def reached_tiers(on, held, tariff, months, seconds, second):
    """Return for how many milliseconds of this second each tier holds."""
    rate = np.array([one.amounts.device_milli for one in held]) @ on
    month = int(np.searchsorted(months, seconds[second], side="right")) - 1
    since = int(np.searchsorted(seconds, months[month]))
    spent, now = int(rate[since:second].sum()) * SECOND, int(rate[second])
    tiers = _terms_at(tariff, months[month] * SECOND)[0]
    return Counter(_rate(tiers, spent + k * now) for k in range(1000))


def _factors(one, tariff, seconds, clock):
    found = np.full(len(seconds), 1000)
    spans = [0, *(later.from_ms // SECOND for later in tariff.later), 2**40]
    for from_s, until_s in pairwise(spans):
        within = (seconds >= from_s) & (seconds < until_s)
        for factor in reversed(_terms_at(tariff, from_s * SECOND)[2]):
            if one.priority >= factor.priority_min and factor.preemptible in (None, one.preemptible):
                found[within & _open(factor.windows, clock)] = factor.milli
    return found


def _open(windows, clock):
    weekday, minute = clock.T
    found = np.full(len(clock), not windows)
    for window in windows:
        today = np.isin(weekday, window.days)
        yesterday = np.isin((weekday + 6) % 7, window.days)
        if window.from_minute < window.until_minute:
            found |= today & (window.from_minute <= minute) & (minute < window.until_minute)
        else:
            found |= (today & (minute >= window.from_minute)) | (yesterday & (minute < window.until_minute))
    return found


def _prices(prices, resource, model, seconds):
    found = np.zeros(len(seconds), dtype=np.int64)
    for wanted in ("", model):
        latest = {}
        for price in prices:
            if price.resource == resource and price.model == wanted:
                latest.setdefault(price.from_ms, price.micro_per_hour)
        for from_ms in sorted(latest):
            found[seconds * SECOND >= from_ms] = latest[from_ms]
    return found
