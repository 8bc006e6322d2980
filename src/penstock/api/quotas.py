"""Answers about quotas and pools."""

import msgspec

from penstock.core.model.answers import Holder, PoolStats, QuotaRow


class QuotaList(msgspec.Struct, frozen=True):
    """How much of each quota is used, and who holds what of the tenants that the caller sees."""

    quotas: list[QuotaRow]
    holders: list[Holder]


class PoolList(msgspec.Struct, frozen=True):
    pools: list[PoolStats]
