"""Money in a simulated world: prices, credits and budgets, a treasurer beside each server, and people who pay.

A day takes seconds here, so that days are posted, months invoiced and credits expire while nodes and servers die.
"""

import random
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from penstock.control import messages as msg
from penstock.core.ledger import posting as treasury
from penstock.core.ledger.books import BooksImage, UsageLog
from penstock.core.ledger.settlement import Calendar
from penstock.core.messages.money import AddCredit, CorrectInvoice, MoneyDone, MoneyRequest, PayInvoice, ReverseEntry
from penstock.core.messages.requests import Refusal
from penstock.core.model.accounts import CreditKind
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.events import CreditAdded, InvoiceIssued, InvoicePaid
from penstock.core.model.ids import TenantName, UserName
from penstock.core.model.prices import Billing, Budget, Factor, Price, Tariff, Terms, Window
from penstock.sim.world.clockwork import UNIX_BEGIN_MS
from penstock.sim.world.ground import Ground, Server

DAY_MS = 5_000
MONTH_MS = 4 * DAY_MS
LOOK_EVERY_MS = 3_000
SETTLED_AFTER_MS = 1_000
QUIET_MS = 9_000
"""After this long without faults every due posting is made."""
RESCUE = 10**12
"""Credit of each tenant in the end, so that all jobs can end."""
BY = UserName("office")


def has_money(seed: int) -> bool:
    """Return whether a seed's world has money: every fourth, and none that has found a bug before there was any."""
    return seed % 4 == 3


class ShortDates:
    """Days and months of a hurried world, counted from its begin."""

    def calendar(self, first_ms: int, posted_ms: int, until_ms: int) -> Calendar:
        days = tuple(range(_begin(posted_ms, DAY_MS), until_ms + 1, DAY_MS))
        return Calendar(days, tuple(range(_begin(first_ms, MONTH_MS), until_ms + MONTH_MS + 1, MONTH_MS)))

    def month(self, at_ms: int) -> int:
        return _begin(at_ms, MONTH_MS)

    def days_before(self, count: int, now_ms: int) -> list[int]:
        return [_begin(now_ms, DAY_MS) - n * DAY_MS for n in range(count)]

    def period(self, name: str, now_ms: int) -> tuple[int, int]:
        length_ms = DAY_MS if name == "day" else MONTH_MS
        return _begin(now_ms, length_ms), _begin(now_ms, length_ms) + length_ms


def _begin(at_ms: int, length_ms: int) -> int:
    return UNIX_BEGIN_MS + (at_ms - UNIX_BEGIN_MS) // length_ms * length_ms


DATES = ShortDates()


class SimulatedBilling:
    """Looks after the accounts for one life of a server, late and from kept books, as the server does."""

    def __init__(self, world: Ground, money: "Money", server: Server) -> None:
        self._world, self._money, self._server = world, money, server
        self._books = UsageLog(msgspec.msgpack.decode(money.kept, type=BooksImage) if money.kept else None)
        self._look()

    def _look(self) -> None:
        if not self._server.alive:
            return
        if not self._server.paused:
            self._books.take(self._world.disk.records[self._books.log.seq :])
            if self._money.rng.random() < 0.2:
                self._money.kept = msgspec.msgpack.encode(self._books.image())
            self._world.agenda.after(self._money.rng.randint(0, 500), self._decide)
        self._world.agenda.after(LOOK_EVERY_MS, self._look)

    def _decide(self) -> None:
        """Compute the due entry; it is requested after a delay, when the account may have changed."""
        if not self._server.alive:
            return
        state, now_ms = self._server.controller.state, UNIX_BEGIN_MS + self._world.agenda.now_ms
        for name in treasury.tenant_names(self._books, state.money, state.config):
            held = self._books.held(name)
            view = treasury.view_of(name, held, state.money, state.config, DATES, now_ms)
            wanted = view.wanted(SETTLED_AFTER_MS)
            treasury.forget(self._books, view, DATES)
            if wanted is not None:
                self._world.agenda.after(self._money.rng.randint(0, 800), lambda w=wanted: self._server.ask(w))  # type: ignore[misc]


class Money:
    """The billing configuration of one world, and its people's requests. All chance is from an rng of its own."""

    def __init__(self, world: Ground, rng: random.Random) -> None:
        self._world, self.rng = world, rng
        self.kept = b""
        """The books as a server saved them last."""
        self.asked: dict[str, MoneyRequest] = {}
        self.answers: dict[str, msg.Reply] = {}
        self._calm_since_ms = 0
        """Start of the present server, or end of the faults if that is later."""
        self._unit = 1

    def declare(self, config: ClusterConfig) -> ClusterConfig:
        """Return the configuration with prices, and with budgets and limits of tenants."""
        rng = self.rng
        digits = rng.choice((0, 2, 3))
        unit = self._unit = 10**digits
        billing = Billing(
            self._tariff(),
            digits=digits,
            refund_lost=rng.random() < 0.8,
            at_zero=rng.choice(("nothing", "warn", "stop_starts", "stop_starts", "suspend", "suspend")),
            issue=rng.choice(("automatic", "automatic", "manual")),
            tax_milli=rng.choice((0, 190)),
        )
        tenants = tuple(
            replace(
                tenant,
                at_zero=rng.choice((None, None, None, "nothing", "suspend")),
                credit_limit=rng.choice((0, 0, 20)) * unit,
                budgets=self._budgets(unit),
            )
            for tenant in config.tenants
        )
        return replace(config, billing=billing, tenants=tenants)

    def _tariff(self) -> Tariff:
        rng, later_ms = self.rng, UNIX_BEGIN_MS + self.rng.randint(5_000, 50_000)
        hour = 3_600_000_000
        prices = [Price("device", hour), Price("cpu", rng.choice((123_456_789, hour)))]
        if rng.random() < 0.5:
            prices.append(Price("device", 2 * hour + 1, later_ms, "A100-SIM"))
        evening = Window(22 * 60 + 14, 6 * 60)  # from 40 seconds after the begin of the world on
        factors = rng.choice(((), (Factor(1_500, 500),), (Factor(300, preemptible=True, windows=(evening,)),)))
        later = (Terms(later_ms, factors=(Factor(777),), minimum_ms=900),) if rng.random() < 0.3 else ()
        return Tariff(tuple(prices), factors=factors, minimum_ms=rng.choice((0, 700, 6_000, 15_000)), later=later)

    def _budgets(self, unit: int) -> tuple[Budget, ...]:
        if self.rng.random() < 0.3:
            return (Budget("month", self.rng.choice((20, 200)) * unit),)
        return (Budget("day", self.rng.choice((1, 5, 40)) * unit, "day", hard=self.rng.random() < 0.8),)

    def server_began(self, server: Server) -> None:
        self._calm_since_ms = self._world.agenda.now_ms
        SimulatedBilling(self._world, self, server)

    # People.

    def plan_requests(self, over_ms: int) -> None:
        """Spread credits, payments and corrections over a time."""
        rng, agenda = self.rng, self._world.agenda
        for tenant in self._world.tenants:
            for number in range(rng.randint(1, 6)):
                begin_ms = rng.randint(0, over_ms) if number else rng.randint(0, 4_000)
                agenda.after(begin_ms, lambda t=tenant: self._add_credit(TenantName(t)))  # type: ignore[misc]
        for _ in range(rng.randint(1, 6)):
            agenda.after(rng.randint(over_ms // 3, over_ms), self._pay_one)
        for _ in range(rng.randint(0, 2)):
            agenda.after(rng.randint(over_ms // 3, over_ms), self._correct_one)
        for _ in range(rng.randint(0, 2)):
            agenda.after(rng.randint(over_ms // 3, over_ms), self._reverse_one)

    def rescue(self) -> None:
        """Give every tenant enough credit for ever; from here on nothing delays a due posting."""
        self._calm_since_ms = self._world.agenda.now_ms
        for tenant in self._world.tenants:
            self._ask(f"rescue-{tenant}", AddCredit(TenantName(tenant), "rescue", RESCUE, "grant", BY))

    def settled(self) -> bool:
        """Return whether all requests are answered, and every due posting had time to be made."""
        answered = len(self.answers) == len(self.asked)
        return answered and self._world.agenda.now_ms - self._calm_since_ms >= QUIET_MS

    def _add_credit(self, tenant: TenantName) -> None:
        rng, key = self.rng, f"credit-{len(self.asked)}"
        expires_ms = rng.choice((0, 0, rng.randint(1_500, 30_000)))
        expires_ms += (UNIX_BEGIN_MS + self._world.agenda.now_ms) if expires_ms else 0
        kind: CreditKind = "payment" if rng.random() < 0.5 else "grant"
        amount = rng.choice((3, 15, 60)) * self._unit + 1
        self._ask(key, AddCredit(tenant, key, amount, kind, BY, expires_ms))

    def _invoice(self) -> str | None:
        server = self._world.server
        heads = server.controller.state.money.invoices.values() if server is not None else ()
        numbers = [head.number for head in heads if head.kind == "invoice"]
        return self.rng.choice(numbers) if numbers else None

    def _pay_one(self) -> None:
        number, server = self._invoice(), self._world.server
        if number is not None and server is not None:
            money, key = server.controller.state.money, f"payment-{len(self.asked)}"
            left = money.account(money.invoices[number].tenant).open_on(number)
            self._ask(key, PayInvoice(number, key, max(1, left // self.rng.choice((1, 1, 2))), BY))

    def _correct_one(self) -> None:
        """Request a credit note, once: a repeat would issue a second one."""
        number, server = self._invoice(), self._world.server
        if number is not None and server is not None:
            event = self._world.disk.records[server.controller.state.money.invoices[number].seq - 1].event
            assert isinstance(event, InvoiceIssued)
            part = self.rng.choice((None, max(1, event.invoice.net // 3)))
            server.ask(CorrectInvoice(event.invoice, "a mistake", BY, part))

    def _reverse_one(self) -> None:
        """Take a credit or a payment back, once."""
        server, found = self._world.server, []
        for record in self._world.disk.records:
            if isinstance(record.event, CreditAdded | InvoicePaid) and record.event.reference != "rescue":
                found.append(ReverseEntry(record.seq, record.time_ms, record.event, "it never came", BY))
        if found and server is not None:
            server.ask(self.rng.choice(found))

    def _ask(self, key: str, request: MoneyRequest) -> None:
        self.asked[key] = request
        self._send(key)

    def _send(self, key: str) -> None:
        """Repeat a request under its reference until it is answered."""
        if key in self.answers:
            return
        server = self._world.server
        if server is not None:
            server.ask(self.asked[key], self._on_reply(key))
        self._world.agenda.after(self.rng.randint(500, 3_000), lambda: self._send(key))

    def _on_reply(self, key: str) -> Callable[[msg.Reply], None]:
        def taken(reply: msg.Reply) -> None:
            if self.rng.random() >= self._world.network.loss and isinstance(reply, MoneyDone | Refusal):
                self.answers[key] = reply

        return taken
