"""Which secrets there are, and which of them a job gets."""

from collections.abc import Iterable

from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.events import SecretRemoved, SecretSet
from penstock.core.model.ids import TenantName, UserName
from penstock.core.model.secrets import Secret

Holder = tuple[TenantName, UserName, str]


class Secrets:
    """A fold of the secrets in the log."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self.by_holder: dict[Holder, Secret] = {}
        self._by_owner: dict[tuple[TenantName, UserName], dict[str, Secret]] = {}
        for secret in secrets:
            self._set(secret)

    def apply(self, event: SecretSet | SecretRemoved) -> None:
        if isinstance(event, SecretSet):
            self._set(event.secret)
        elif self.by_holder.pop((event.tenant, event.owner, event.name), None) is not None:
            own = self._by_owner[event.tenant, event.owner]
            del own[event.name]
            if not own:
                del self._by_owner[event.tenant, event.owner]

    def _set(self, secret: Secret) -> None:
        self.by_holder[secret.holder] = secret
        self._by_owner.setdefault((secret.tenant, secret.owner), {})[secret.name] = secret

    def of_tenant(self, tenant: TenantName) -> list[Secret]:
        """Return the secrets that a tenant shares. Any thread."""
        return list(self._by_owner.get((tenant, UserName("")), {}).values())

    def of_user(self, user: UserName) -> list[Secret]:
        """Return a user's own secrets. Any thread."""
        return list(self._by_owner.get((TenantName(""), user), {}).values())

    def key_ids(self) -> set[str]:
        """Return the keys with which secrets are sealed. Any thread."""
        return {one.key_id for one in self.by_holder.copy().values()}

    def of_the_gone(self, before: ClusterConfig, after: ClusterConfig) -> list[Secret]:
        """Return the secrets of users and tenants that were declared before, and are not after."""
        tenants = {tenant.name for tenant in before.tenants} - {tenant.name for tenant in after.tenants}
        users = before.user_by_name.keys() - after.user_by_name.keys()
        return [one for one in self.by_holder.values() if one.tenant in tenants or one.owner in users]

    def of(self, tenant: TenantName, user: UserName, name: str) -> Secret | None:
        """Return the secret that a job of this user and tenant gets by a name: the user's own, else the tenant's."""
        own = self.by_holder.get((TenantName(""), user, name))
        return own or self.by_holder.get((tenant, UserName(""), name))

    def names(self, tenant: TenantName, user: UserName) -> list[str]:
        """Return the names that jobs of this user and tenant may use. Any thread."""
        return sorted({one.name for one in (*self.of_user(user), *self.of_tenant(tenant))})
