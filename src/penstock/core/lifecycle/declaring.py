"""What follows when something else is declared: nobody inherits what a former bearer of their name had."""

from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.events import ConfigChanged, SecretRemoved, TokenRevoked
from penstock.core.model.ids import UserName


def declared(tx: Transaction, config: ClusterConfig, by: UserName) -> None:
    """Declare a configuration; revoke the tokens, and remove the secrets, of all who are not in it any more.

    Whoever is declared under such a name later is somebody else. (Logs of former versions have tokens of users that
    are gone, so this looks at all of them. Secrets may also be of whoever runs the server, who is not declared.)
    """
    before = tx.state.config
    if config != before:
        tx.emit(ConfigChanged(config, by))
    for token in tx.state.tokens.of_nobody(config.user_by_name):
        tx.emit(TokenRevoked(token.id, by))
    for secret in tx.state.secrets.of_the_gone(before, config):
        tx.emit(SecretRemoved(secret.tenant, secret.owner, secret.name, by))
