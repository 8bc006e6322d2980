"""Groups and steps lose nothing and count nothing twice."""

from hypothesis import given

from penstock.report.invoice.sums import USERS_MAX, by_queue, by_resource, by_user, steps
from tests.report.invoice.samples import invoice, line
from tests.report.invoice.strategies import lines


@given(lines())
def test_every_grouping_adds_up_to_the_lines(held):
    net = sum(one.amount for one in held)
    queues = by_queue(held)
    assert sum(queue.amount for queue in queues) == net
    for queue in queues:
        assert queue.amount == sum(user.amount for user in queue.users)
        for user in queue.users:
            assert user.amount == sum(one.amount for one in user.lines)
            assert {(one.queue, one.user) for one in user.lines} == {(queue.queue, user.user)}
    assert sum(len(user.lines) for queue in queues for user in queue.users) == len(held)
    assert sum(share.amount for share in by_resource(held)) == net
    shown, (_, rest) = by_user(held)
    assert sum(share.amount for share in shown) + rest == net


@given(lines())
def test_list_prices_less_what_was_saved_is_the_net_amount(held):
    way = steps(invoice(held))
    assert way.list - way.saved + way.surcharges + way.rounding + way.refunds == sum(one.amount for one in held)


def test_savings_and_surcharges_are_told_apart_by_tier_and_factor():
    held = [
        line(full=1000, amount=801, tier_milli=800),
        line(full=1000, amount=1250, factor_milli=1250),
        line(full=1000, amount=1000, tier_milli=800, factor_milli=1250),
        line(full=1000, amount=1001),
        line(full=-300, amount=-240, tier_milli=800, kind="refund"),
    ]
    assert steps(invoice(held)) == (4000, 199, 250, 1, -240)


@given(lines())
def test_bars_are_part_of_the_largest(held):
    for share in (*by_resource(held), *by_user(held)[0]):
        assert 0 <= share.permille <= 1000


def test_what_was_given_back_has_no_bar_beside_what_is_owed():
    shares = by_resource([line(amount=100), line(model="A100", amount=-50)])
    assert [(share.model, share.permille) for share in shares] == [("H100", 1000), ("A100", 0)]


def test_the_last_user_is_not_summed_up_as_one_other():
    for count, shown in ((USERS_MAX + 1, USERS_MAX + 1), (USERS_MAX + 2, USERS_MAX)):
        found, (others, rest) = by_user([line(user=f"u{n:02}", amount=100 - n) for n in range(count)])
        assert (len(found), others) == (shown, count - shown)
        assert found[0].user == "u00"
        assert rest == sum(100 - n for n in range(shown, count))
