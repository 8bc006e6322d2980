"""A new configuration: it revokes tokens of removed users, and removes or pauses what belonged to removed holders."""

from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.events import (
    ConfigChanged,
    NotificationRemoved,
    SchedulePaused,
    SecretRemoved,
    TokenRevoked,
)
from penstock.core.model.ids import UserName


def declared(tx: Transaction, config: ClusterConfig, by: UserName) -> None:
    """Declare a configuration; revoke tokens of users it lacks, remove secrets and notifications of users and tenants
    that it drops, and pause their schedules.

    A user declared under such a name later inherits none of them. (Logs of former versions have tokens of removed
    users, so all tokens are checked. A secret's owner may also be the server's operator, who is not declared.)
    """
    before = tx.state.config
    if config != before:
        tx.emit(ConfigChanged(config, by))
    for token in tx.state.tokens.of_nobody(config.user_by_name):
        tx.emit(TokenRevoked(token.id, by))
    for secret in tx.state.secrets.of_the_gone(before, config):
        tx.emit(SecretRemoved(secret.tenant, secret.owner, secret.name, by))
    for one in tx.state.subscriptions.of_the_gone(before, config):
        tx.emit(NotificationRemoved(one.owner, one.name, by))
    for schedule in tx.state.schedules.of_the_gone(before, config):
        gone = f"user {schedule.owner}" if schedule.owner not in config.user_by_name else f"tenant {schedule.tenant}"
        tx.emit(SchedulePaused(schedule.tenant, schedule.owner, schedule.name, by, f"{gone} was removed"))
