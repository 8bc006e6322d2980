"""Sends one message by the channel of a subscription: blocks for some seconds at most, so it is for threads."""

from collections.abc import Callable, Collection

import msgspec

from penstock.core.model.ids import UserName
from penstock.core.model.notifications import Destination, Notifications, NotifyCommand
from penstock.core.model.secrets import Secret
from penstock.core.state.state import State
from penstock.security.vault import Vault, VaultError
from penstock.server.services.notifying import mail, webhook, wording
from penstock.server.services.notifying.command import run_command
from penstock.server.services.notifying.errors import NotSent
from penstock.server.services.notifying.places import JobPlace, Target
from penstock.server.services.notifying.queues import Message

USUAL_KEY = "WEBHOOK_SIGNING_KEY"
"""The secret of a user or tenant that signs what their jobs send, where a job names none."""
ID_HEADER, TIME_HEADER, SIGNATURE_HEADER = "webhook-id", "webhook-timestamp", "webhook-signature"


def check_destination(declared: Notifications, channel: str, to: str, *, operates: bool) -> str:
    """Return a destination as it may be shown.

    Args:
        operates: whether the user is an operator or administrator.
    Raises: NotSent when the administrators' rules do not permit it.
    """
    if channel == "email":
        mail.check_address(to, declared.email)
        return to
    if channel == "command":
        return command_of(declared, to, operates=operates).name
    return webhook.read_address(to, declared.webhooks).shown


def command_of(declared: Notifications, name: str, *, operates: bool) -> NotifyCommand:
    """Return a declared command that the user may choose. Raises: NotSent."""
    open_ones = [one for one in declared.commands if operates or one.open_to == "everyone"]
    for one in open_ones:
        if one.name == name:
            return one
    known = ", ".join(one.name for one in open_ones)
    raise NotSent(f"there is no command '{name[:63]}' for you", hint=f"known: {known}" if known else "none is declared")


class Sender:
    """Opens destinations and sends. Any thread.

    Args:
        operators: who runs the server, declared or not.
    """

    def __init__(
        self, state: Callable[[], State], vault: Vault, operators: Callable[[], Collection[UserName]], server_url: str
    ) -> None:
        self._state, self._vault, self._operators, self._server_url = state, vault, operators, server_url

    def send(self, message: Message, target: Target, now_ms: int, *, operates: bool) -> None:
        """Send a message. Raises: NotSent."""
        declared = self._state().config.notifications
        place = self._place(target)
        url = (declared.server_url or self._server_url).rstrip("/")
        if target.channel == "email":
            mail.check_address(place.to, declared.email)
            title, text = wording.title_of(message), wording.text_of(message, target, url)
            made = mail.mail(declared.email, place.to, f"[penstock] {title}", text, message.id, now_ms)
            mail.send_mail(declared.email, self._password(declared), made)
        elif target.channel == "command":
            command = command_of(declared, place.to, operates=operates)
            run_command(command, wording.json_of(message, target, url))
        else:
            shape = wording.slack_of if target.channel == "slack" else wording.json_of
            body, seconds = shape(message, target, url), now_ms // 1000
            headers = {ID_HEADER: message.id, TIME_HEADER: str(seconds)}
            if keys := self._keys(target) if isinstance(target, JobPlace) else place.signing_key.split():
                made_by = (webhook.signature(key, message.id, seconds, body) for key in keys)
                headers[SIGNATURE_HEADER] = " ".join(made_by)
            webhook.post(webhook.read_address(place.to, declared.webhooks), body, headers)

    def _place(self, target: Target) -> Destination:
        if isinstance(target, JobPlace):
            return Destination(self._of_secret(target, target.secret) if target.secret else target.to)
        try:
            return msgspec.json.decode(self._vault.open(target.to), type=Destination)
        except VaultError as error:
            raise NotSent("the destination cannot be opened", hint="set it again") from error

    def _keys(self, target: JobPlace) -> list[str]:
        """Return the keys that sign what a job sends to a webhook; none where neither it nor its tenant has any."""
        name = target.signed_by or USUAL_KEY
        if target.channel != "webhook" or not (target.signed_by or self._secret(target, name)):
            return []
        try:
            return webhook.keys_of(self._of_secret(target, name))
        except ValueError as error:
            raise NotSent(f"secret {name} is no key: {error}", hint="set it again: penstock secret set") from None

    def _secret(self, target: JobPlace, name: str) -> Secret | None:
        user = UserName("") if target.delegated else target.owner
        return self._state().secrets.of(target.tenant, user, name)

    def _of_secret(self, target: JobPlace, name: str) -> str:
        """Return what a secret holds: one that the job itself could have."""
        found = self._secret(target, name)
        if found is None:
            raise NotSent(f"there is no secret {name} any more", hint="set it again: penstock secret set")
        try:
            return self._vault.open(found).strip()
        except VaultError as error:
            raise NotSent(f"secret {name} cannot be opened", hint="set it again", again=True) from error

    def _password(self, declared: Notifications) -> str:
        server = declared.email
        if not server.user:
            return ""
        owner = self._state().config.user_by_name.get(server.password_owner)
        administers = server.password_owner in self._operators() or (owner is not None and owner.role == "admin")
        if not administers:  # what a user keeps for their own jobs is sent nowhere else
            raise NotSent("password_owner of the mail server is no administrator", hint="see notifications.email")
        found = self._own_secret(server.password_owner, server.password_secret)
        if found is None:
            text = f"the password of the mail server is not set: secret {server.password_secret}"
            raise NotSent(text, hint=f"{server.password_owner} sets it: penstock secret set", again=True)
        try:
            return self._vault.open(found)
        except VaultError as error:
            raise NotSent("the password of the mail server cannot be opened", again=True) from error

    def _own_secret(self, owner: UserName, name: str) -> Secret | None:
        return next((one for one in self._state().secrets.of_user(owner) if one.name == name), None)
