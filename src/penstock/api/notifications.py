"""What goes over HTTP about notifications."""

import msgspec


class NotificationView(msgspec.Struct, frozen=True):
    """A user's choice of events and of a place, and what became of its messages. Times in unix ms; 0: never."""

    name: str
    owner: str
    channel: str
    """`email`, `webhook`, `slack` or `command`."""
    to: str
    """The place as far as it may be shown: of a webhook the host only."""
    events: list[str]
    tenant: str
    """Whose budgets it is about; empty: of none."""
    set_ms: int
    waiting: int
    """Events that are still to be sent."""
    tries: int
    """Of the message that is being sent, and failed so far."""
    next_try_ms: int
    sent: int
    """Messages that were taken, and since the server began to count."""
    given_up: int
    """Messages that were not taken, and are not tried again."""
    last_sent_ms: int
    last_error: str
    """Of the last try, where it failed."""
    last_error_ms: int


class Channels(msgspec.Struct, frozen=True):
    """What the caller may choose from, as administrators declared it."""

    email_domains: list[str]
    """E-mails may go to addresses of these; none: there are no e-mails."""
    webhook_hosts: list[str]
    commands: list[str]


class NotificationList(msgspec.Struct, frozen=True):
    notifications: list[NotificationView]
    channels: Channels
    of_jobs: list[NotificationView] = []
    """Destinations that jobs name themselves, and that messages wait for or went to lately."""


class NotificationMade(msgspec.Struct, frozen=True):
    notification: NotificationView
    signing_key: str = ""
    """Of a new webhook: what its messages are signed with. It is shown only now."""


class NotificationTested(msgspec.Struct, frozen=True):
    """The outcome of a test message."""

    sent: bool
    error: str = ""
    hint: str = ""
