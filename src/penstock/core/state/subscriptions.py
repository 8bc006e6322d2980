"""Who chose to hear of what: a fold of the log."""

from collections.abc import Iterable

from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.events import NotificationRemoved, NotificationSet
from penstock.core.model.ids import UserName
from penstock.core.model.notifications import Subscription as Subscription


class Subscriptions:
    """The choices of all users."""

    def __init__(self, subscriptions: Iterable[Subscription] = ()) -> None:
        self.by_key: dict[tuple[UserName, str], Subscription] = {}
        self._by_owner: dict[UserName, dict[str, Subscription]] = {}
        for one in subscriptions:
            self._set(one)

    def apply(self, event: NotificationSet | NotificationRemoved) -> None:
        if isinstance(event, NotificationSet):
            self._set(event.subscription)
        elif self.by_key.pop((event.owner, event.name), None) is not None:
            own = self._by_owner[event.owner]
            del own[event.name]
            if not own:
                del self._by_owner[event.owner]

    def _set(self, subscription: Subscription) -> None:
        self.by_key[subscription.key] = subscription
        self._by_owner.setdefault(subscription.owner, {})[subscription.name] = subscription

    def of_user(self, user: UserName) -> list[Subscription]:
        """Return a user's choices. Any thread."""
        return list(self._by_owner.get(user, {}).values())

    def key_ids(self) -> set[str]:
        """Return the keys with which destinations are sealed. Any thread."""
        return {one.to.key_id for one in self.by_key.copy().values()}

    def of_the_gone(self, before: ClusterConfig, after: ClusterConfig) -> list[Subscription]:
        """Return the choices of users, and about tenants, that were declared before, and are not after."""
        tenants = {tenant.name for tenant in before.tenants} - {tenant.name for tenant in after.tenants}
        users = before.user_by_name.keys() - after.user_by_name.keys()
        return [one for one in self.by_key.values() if one.tenant in tenants or one.owner in users]
