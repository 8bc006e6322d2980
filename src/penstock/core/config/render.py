"""A configuration as a cluster file says it: plain data from which the reader makes the same configuration.

What is as it is by default is left out, but for the names of pools, tenants and queues.
"""

from itertools import pairwise
from typing import Any

from penstock.core.config.billing import DAYS, PREFIXES
from penstock.core.model import cluster as c
from penstock.core.model.access import User
from penstock.core.model.amounts import BYTES, MILLI, exact_duration, exact_size, format_time
from penstock.core.model.prices import Billing, Budget, Factor, Party, Price, Terms, Window

Plain = dict[str, Any]


def declaration(config: c.ClusterConfig) -> Plain:
    """Return plain data (texts, numbers, lists, mappings) that `parse_cluster` reads as `config`."""
    default = c.ClusterConfig()
    found: Plain = {
        "root_policy": config.root_policy if config.root_policy != default.root_policy else None,
        "pools": [_pool(pool) for pool in config.pools],
        "tenants": [_tenant(tenant, config.billing.digits) for tenant in config.tenants],
        "users": [_user(user) for user in config.users],
        "queues": [_queue(queue) for queue in config.queues],
        "reservations": [_reservation(one) for one in config.reservations],
        "candidates": list(config.candidates),
        "billing": _billing(config.billing),
        "settings": settings_of(config.settings),
    }
    return _said(found)


def _said(values: Plain) -> Plain:
    """Return what says something."""
    return {name: value for name, value in values.items() if value not in (None, "", [], {}, ())}


def number(milli: int) -> int | float:
    """Return thousandths as the number whose shortest text is exact."""
    return milli // MILLI if milli % MILLI == 0 else milli / MILLI


def amount(value: int, digits: int) -> str:
    """Return an amount of the currency's smallest unit as it is written."""
    whole, part = divmod(value, 10**digits)
    return f"{whole}.{part:0{digits}d}" if digits else str(whole)


def _micro(value: int) -> str:
    whole, part = divmod(value, 1_000_000)
    return f"{whole}." + f"{part:06d}".rstrip("0") if part else str(whole)


def _changed(value: Any, default: Any, *names: str) -> Plain:
    """Return fields that are not as by default, and are written as they are."""
    return {name: getattr(value, name) for name in names if getattr(value, name) != getattr(default, name)}


def _quota(quota: c.Quota) -> Plain:
    return {name: _quantity(name, value) for name, value in quota}


def _quantity(resource: str, value: int) -> str | float:
    _, resource = c.split_resource(resource)
    if resource in BYTES:
        return exact_size(value)
    return value if resource == "jobs" else number(value)


def _pool(pool: c.Pool) -> Plain:
    same = _changed(pool, c.Pool(pool.name), "kind", "description", "placement", "backfill", "virtualization")
    speeds = {model: {"speed": number(speed), "cost": number(cost)} for model, speed, cost in pool.speeds}
    return {"name": str(pool.name), **same, **_said({"reserve": number(pool.reserve_milli) or None, "speeds": speeds})}


def _queue(queue: c.Queue) -> Plain:
    same = _changed(queue, c.Queue(queue.name), "parent", "policy", "preemption", "weight", "max_waiting")
    found: Plain = {"name": str(queue.name), **same}
    found |= _said({"guaranteed": _quota(queue.guaranteed), "max": _quota(queue.max)})
    if queue.lend is not None:  # nothing is lent: that is said
        found["lend"] = _quota(queue.lend)
    if queue.alerts != c.QUOTA_ALERTS:  # none is said, too
        found["alerts"] = list(queue.alerts)
    if queue.min_runtime_ms is not None:
        found["min_runtime"] = exact_duration(queue.min_runtime_ms)
    if queue.idle is not None:
        found["idle"] = {"after": exact_duration(queue.idle.after_ms), "reclaim": queue.idle.reclaim}
    return found


def settings_of(settings: c.Settings) -> Plain:
    """Return the settings that are not as by default, durations and parts in their own words."""
    default, found = c.Settings(), Plain()
    for name in c.Settings.__struct_fields__:
        value = getattr(settings, name)
        if value == getattr(default, name):
            continue
        if name.endswith("_ms"):
            found[name.removesuffix("_ms")] = exact_duration(value)
        elif name.endswith("_milli"):
            found[name.removesuffix("_milli")] = number(value)
        else:
            found[name] = value
    return found


def _reservation(kept: c.Reservation) -> Plain:
    window = {"start": format_time(kept.start_ms), "end": format_time(kept.end_ms)}
    return {"name": kept.name, "tenant": str(kept.tenant), **window, "nodes": list(map(str, kept.nodes))}


def _tenant(tenant: c.Tenant, digits: int) -> Plain:
    found = {
        "description": tenant.description,
        "max": _quota(tenant.max),
        "device_hours": tenant.device_hours_max or None,
        "budgets": [_budget(budget, digits) for budget in tenant.budgets],
        "credit_limit": amount(tenant.credit_limit, digits) if tenant.credit_limit else None,
        "at_zero": tenant.at_zero,
        "bill_to": _party(tenant.bill_to),
    }
    alerts = {"alerts": list(tenant.alerts)} if tenant.alerts != c.QUOTA_ALERTS else {}
    return {"name": str(tenant.name), **_said(found), **alerts}


def _budget(budget: Budget, digits: int) -> Plain:
    found: Plain = {"name": budget.name, "amount": amount(budget.amount, digits), "period": budget.period}
    if budget.period == "once":
        found |= {"from": format_time(budget.from_ms), "until": format_time(budget.until_ms)}
    return found | {"hard": budget.hard, "alerts": list(budget.alerts)}


def _party(party: Party) -> Plain:
    return _said({"name": party.name, "address": list(party.address), "tax_id": party.tax_id, "note": party.note})


def _user(user: User) -> Plain:
    tenants = {str(name): role for name, role in user.tenants}
    found = {"role": user.role, "tenants": tenants, "disabled": user.disabled or None, "description": user.description}
    found["account"] = user.account
    return {"name": str(user.name), **_said(found)}


def _billing(billing: Billing) -> Plain:
    default = Billing()
    found: Plain = _changed(billing, default, "currency", "digits", "time_zone", "refund_lost", "at_zero")
    found["prices"] = [_price(price) for price in billing.tariff.prices]
    terms = billing.tariff.terms
    found |= _terms(terms[0], Terms())
    found["later"] = [{"from": format_time(one.from_ms), **_terms(one, before)} for before, one in pairwise(terms)]
    invoices: Plain = _changed(billing, default, "issue")
    for field, name in (("invoice_prefix", "prefix"), ("credit_note_prefix", "credit_note_prefix")):
        if getattr(billing, field) != PREFIXES[name]:
            invoices[name] = getattr(billing, field)
    found["invoices"] = invoices
    if billing.tax_name:
        found["tax"] = {"name": billing.tax_name, "rate": number(billing.tax_milli)}
    found["issuer"] = _party(billing.issuer)
    kept = {name: found[name] for name in ("tiers", "factors") if name in found}  # an empty one says so
    return _said(found) | kept


def _terms(terms: Terms, before: Terms) -> Plain:
    found: Plain = {}
    if terms.minimum_ms != before.minimum_ms:
        found["minimum_period"] = exact_duration(terms.minimum_ms)
    if terms.tiers != before.tiers:
        found["tiers"] = {hours: number(milli) for hours, milli in terms.tiers}
    if terms.tier_reading != before.tier_reading:
        found["tier_reading"] = terms.tier_reading
    if terms.factors != before.factors:
        found["factors"] = [entry for factor in terms.factors for entry in _factors(factor)]
    return found


def _price(price: Price) -> Plain:
    found: Plain = {"resource": price.resource, "per_hour": _micro(price.micro_per_hour)}
    if price.model:
        found["model"] = price.model
    if price.from_ms:
        found["from"] = format_time(price.from_ms)
    return found


def _factors(factor: Factor) -> list[Plain]:
    """Return a factor as one entry for each set of days: of several with one rate the first that fits counts."""
    found: Plain = {"factor": number(factor.milli)}
    if factor.priority_min:
        found["priority"] = factor.priority_min
    if factor.preemptible is not None:
        found["preemptible"] = factor.preemptible
    if not factor.windows:
        return [found]
    by_days: dict[tuple[int, ...], list[str]] = {}
    for window in factor.windows:
        by_days.setdefault(window.days, []).append(_hours(window))
    return [found | {"hours": hours, "days": [DAYS[day] for day in days]} for days, hours in by_days.items()]


def _hours(window: Window) -> str:
    times = (divmod(minute, 60) for minute in (window.from_minute, window.until_minute))
    return "-".join(f"{hour:02}:{minute:02}" for hour, minute in times)
