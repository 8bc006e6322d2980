"""Secrets for jobs, as the log knows them: by name, and sealed."""

import re

import msgspec

from penstock.core.model.ids import TenantName, UserName

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
NAME_EXPECTED = "1 to 63 letters, digits, '.', '_' or '-', a letter or digit first"


class Secret(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value for jobs as an environment variable; it cannot be read from the log.

    Either a tenant shares it with all of its jobs, or a user has it for their own jobs, in any tenant.
    """

    name: str
    tenant: TenantName = TenantName("")
    owner: UserName = UserName("")
    key_id: str = ""
    """Of the key that it is sealed with."""
    sealed: str = ""
    """Nonce, value and tag, encrypted (base64)."""
    set_ms: int = 0
    by: UserName = UserName("")

    @property
    def holder(self) -> tuple[TenantName, UserName, str]:
        """Its unique key."""
        return self.tenant, self.owner, self.name

    @property
    def context(self) -> str:
        """Sealed with the value: a copy under another name cannot be opened."""
        return f"{self.tenant}\0{self.owner}\0{self.name}"

    @property
    def text(self) -> str:
        """How people call it."""
        return f"secret {self.name} of " + (f"tenant {self.tenant}" if self.tenant else f"user {self.owner}")
