"""Notifications: which events there are, the channels that an administrator declares, and who chose to hear what."""

from typing import Literal

import msgspec

from penstock.core.model.ids import TenantName, UserName
from penstock.core.model.secrets import Secret

Channel = Literal["email", "webhook", "slack", "command"]
CommandUsers = Literal["operators", "everyone"]
MailSecurity = Literal["starttls", "tls", "none"]

JOB_EVENTS: dict[str, str] = {
    "start": "it started, or started again",
    "success": "it succeeded",
    "failure": "it failed",
    "cancelled": "it was cancelled",
    "preempted": "it is asked to make room for another job",
    "requeued": "its attempt was lost or failed, and it waits again",
    "never": "it can never start as the cluster is",
}
"""Of a user's own jobs."""
TENANT_EVENTS: dict[str, str] = {
    "budget": "a budget, credit or maximum has reached one of its percentages, or a day is unusual",
    "exhausted": "nothing of the tenant starts any more, or its jobs start again",
}
NODE_EVENTS: dict[str, str] = {
    "node_lost": "a node does not answer any more",
    "node_closed": "a node takes no new work",
}
EVENTS = (*JOB_EVENTS, *TENANT_EVENTS, *NODE_EVENTS)
GROUPS: dict[str, tuple[str, ...]] = {
    "end": ("success", "failure", "cancelled"),
    "jobs": tuple(JOB_EVENTS),
    "tenant": tuple(TENANT_EVENTS),
    "nodes": tuple(NODE_EVENTS),
}
"""Words for several events."""
NOTHING = "none"
"""In a job's `notify`: no event of it is sent."""
MAIL_TYPES: dict[str, tuple[str, ...]] = {
    "NONE": (NOTHING,),
    "BEGIN": ("start",),
    "END": GROUPS["end"],
    "FAIL": ("failure",),
    "REQUEUE": ("preempted", "requeued"),
    "ALL": tuple(JOB_EVENTS),
}
"""What the words of Slurm's `--mail-type` are here; it has others, which have no counterpart."""


def expanded(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the events that these words of `EVENTS` and `GROUPS` name, each once, in the order of `EVENTS`."""
    named = {event for word in words for event in GROUPS.get(word, (word,))}
    return tuple(event for event in (*EVENTS, NOTHING) if event in named)


class MailServer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The SMTP server that takes e-mails; without a host there are none."""

    host: str = ""
    port: int = 587
    security: MailSecurity = "starttls"
    sender: str = ""
    user: str = ""
    password_secret: str = ""
    """Name of the secret with the password, one of `password_owner`'s own."""
    password_owner: UserName = UserName("")
    domains: tuple[str, ...] = ()
    """E-mails go to addresses of these alone; `*`: to any."""


class WebhookRules(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where webhooks may go; nowhere by default."""

    hosts: tuple[str, ...] = ()
    """Public hosts, by https: `hooks.example.org`, `*.example.org`, `*`; another port than 443 behind a colon."""
    internal: tuple[str, ...] = ()
    """Hosts that may have private addresses, also by http: `chat.internal:8080`."""


class NotifyCommand(msgspec.Struct, frozen=True, omit_defaults=True):
    """A program of the server's machine that gets messages as JSON on its standard input."""

    name: str
    path: str
    open_to: CommandUsers = "operators"


class Notifications(msgspec.Struct, frozen=True, omit_defaults=True):
    """The channels that users may choose from."""

    server_url: str = ""
    """Address of the server in links of messages; empty: the one that it listens on."""
    email: MailServer = MailServer()
    webhooks: WebhookRules = WebhookRules()
    commands: tuple[NotifyCommand, ...] = ()


class Subscription(msgspec.Struct, frozen=True, omit_defaults=True):
    """A user's choice: these events, to this place. Where it goes is sealed: the address of a webhook is a secret."""

    name: str
    owner: UserName
    channel: Channel
    events: tuple[str, ...]
    to: Secret
    """JSON of `Destination`, sealed."""
    shown: str
    """The destination as it may be shown: of a webhook the host only."""
    tenant: TenantName = TenantName("")
    """Whose budgets `TENANT_EVENTS` are about."""
    set_ms: int = 0
    after: int = 0
    """The last record before it was first set: what happened until then is not sent."""

    @property
    def key(self) -> tuple[UserName, str]:
        """Its unique key."""
        return self.owner, self.name


class Destination(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where messages go: an e-mail address, a URL, or the name of a command."""

    to: str
    signing_key: str = ""
    """Signs webhooks (`whsec_` and base64)."""


def sealed_as(owner: UserName, name: str) -> Secret:
    """Return what the vault seals a destination as: no secret of a job has such a name."""
    return Secret(f"notification/{name}", owner=owner)
