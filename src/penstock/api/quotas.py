"""Answers about quotas and pools."""

from penstock.api.types import PagedList
from penstock.core.model.answers import Holder, PoolStats, QuotaRow


class QuotaList(PagedList, frozen=True):
    """How much of each quota is used, and who holds what of the tenants that the caller sees."""

    quotas: list[QuotaRow]
    holders: list[Holder]


class PoolList(PagedList, frozen=True):
    pools: list[PoolStats]
