"""The `notifications` section of a cluster file, and events as people name them."""

import ipaddress
import re
from collections.abc import Sequence
from typing import Any, get_args

from penstock.core.config.fields import STRING, Field, Section, integer, section, sections, text, word
from penstock.core.config.reader import Reader
from penstock.core.model.errors import nearest
from penstock.core.model.notifications import (
    MAIL_TYPES,
    NOTHING,
    CommandUsers,
    MailSecurity,
    MailServer,
    Notifications,
    NotifyCommand,
    WebhookRules,
    expanded,
)
from penstock.core.model.secrets import NAME as SECRET_NAME
from penstock.core.model.secrets import NAME_EXPECTED as NAME_EXPECTED

HOSTS_MAX = 200
COMMANDS_MAX = 50
HOST_MAX = 253
ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63}){0,8}")
ADDRESS_EXPECTED = "an e-mail address such as ann@example.org"
NAME = SECRET_NAME
"""Names of what users and administrators set: as those of secrets."""
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*\.?")
_HOST = re.compile(rf"(?P<host>(\*\.)?{_LABEL}(\.{_LABEL})*|\*|\[[0-9a-fA-F:.]+\])(:(?P<port>[0-9]{{1,5}}))?")
_HOST_EXPECTED = "a host such as hooks.example.org, *.example.org or chat.internal:8080"
_SERVER = re.compile(r"https?://[A-Za-z0-9.\[\]:-]{1,255}(/[A-Za-z0-9._~/-]{0,200})?")


def read_events(reader: Reader, field: str, value: Any, known: Sequence[str]) -> tuple[str, ...]:
    """Read a word, words with commas, or a list of words as events, also those of Slurm; unknown ones are reported."""
    words = value.replace(",", " ").split() if isinstance(value, str) and len(value) <= HOST_MAX else value
    if isinstance(words, list) and all(isinstance(one, str) and one in MAIL_TYPES for one in words):
        words = list(dict.fromkeys(event for one in words for event in MAIL_TYPES[one]))
    if not isinstance(words, list) or not 0 < len(words) <= len(known):
        reader.wrong(field, value, "one or more of " + ", ".join(known))
        return ()
    for one in words:
        if not isinstance(one, str) or one not in known:
            hint = nearest(one, known) if isinstance(one, str) and len(one) <= HOST_MAX else ""
            reader.wrong(field, one, "one of " + ", ".join(known), hint=hint)
            return ()
    if NOTHING in words and len(words) > 1:
        reader.wrong(field, value, f"'{NOTHING}' alone, or events")
        return ()
    return expanded(tuple(words))


def split_host(entry: str) -> tuple[str, int]:
    """Return host and port (0: none given) of a declared entry."""
    match = _HOST.fullmatch(entry)
    assert match is not None, "checked where it was read"
    return match["host"].strip("[]").lower(), int(match["port"] or 0)


def _hosts(about: str, *, patterns: bool) -> Field:
    def read(reader: Reader, field: str, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or len(value) > HOSTS_MAX:
            reader.wrong(field, value, f"a list of at most {HOSTS_MAX} hosts")
            return ()
        for index, one in enumerate(value):
            if not isinstance(one, str) or len(one) > HOST_MAX + 6 or not _is_host(one, patterns=patterns):
                reader.wrong(f"{field}[{index}]", one, _HOST_EXPECTED if patterns else "a host without *")
                return ()
        return tuple(value)

    return Field(read, {"type": "array", "items": STRING, "maxItems": HOSTS_MAX}, about, write=list)


def _is_host(text: str, *, patterns: bool) -> bool:
    match = _HOST.fullmatch(text)
    if match is None or int(match["port"] or 1) not in range(1, 65_536):
        return False
    host = match["host"].strip("[]")
    if ":" in host:
        return not patterns and _is_address(host)
    return not patterns or not _is_address(host) if "*" not in host else patterns


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _domains(reader: Reader, field: str, value: Any) -> tuple[str, ...]:
    right = isinstance(value, list) and len(value) <= HOSTS_MAX
    if not right or not all(isinstance(one, str) and (one == "*" or _DOMAIN.fullmatch(one)) for one in value):
        reader.wrong(field, value, "a list of domains such as example.org, or '*' for all")
        return ()
    return tuple(one.lower() for one in value)


def _matching(about: str, pattern: re.Pattern[str], expected: str) -> Field:
    def read(reader: Reader, field: str, value: Any) -> str:
        if isinstance(value, str) and len(value) <= HOST_MAX + 210 and pattern.fullmatch(value):
            return value
        reader.wrong(field, value, expected)
        return ""

    return Field(read, STRING, about)


def _path(reader: Reader, field: str, value: Any) -> str:
    if isinstance(value, str) and value.startswith("/") and len(value) <= 4_096 and value.isprintable():
        return value
    reader.wrong(field, value, "the absolute path of a program")
    return ""


def _check_mail(reader: Reader, mail: MailServer) -> None:
    if not mail.host:
        reader.wrong("host", mail.host, "the host of an SMTP server")
    if not mail.sender:
        reader.wrong("sender", mail.sender, ADDRESS_EXPECTED)
    if bool(mail.user) != bool(mail.password_secret) or bool(mail.user) != bool(mail.password_owner):
        expected = "user, password_secret and password_owner together, or none of them"
        reader.wrong("user", mail.user, expected)
    if mail.user and mail.security == "none":
        reader.wrong("security", mail.security, "starttls or tls: the password would cross the network in the clear")
    if not mail.domains:
        reader.wrong("domains", "nothing", "domains that e-mails may go to, such as [example.org], or ['*'] for all")


def _check(reader: Reader, found: Notifications) -> None:
    seen: set[str] = set()
    for index, one in enumerate(found.commands):
        field = f"commands[{index}].name"
        if not NAME.fullmatch(one.name):
            reader.wrong(field, one.name, NAME_EXPECTED)
        elif one.name in seen:
            reader.wrong(field, one.name, "a name that no other command has", code="duplicate_name")
        seen.add(one.name)


_MAIL = Section(
    MailServer,
    {
        "host": _matching("SMTP server", _DOMAIN, "the host of an SMTP server"),
        "port": integer("its port", 1, 65_535),
        "security": word("`starttls`, `tls` from the first byte, or `none` (on this machine)", get_args(MailSecurity)),
        "sender": _matching("address that e-mails come from", ADDRESS, ADDRESS_EXPECTED),
        "user": text("name to log in with (none)", most=256),
        "password_secret": _matching("secret with the password (`penstock secret set`)", SECRET_NAME, NAME_EXPECTED),
        "password_owner": text("user whose own secret that is: an administrator", most=256),
        "domains": Field(
            _domains,
            {"type": "array", "items": STRING, "maxItems": HOSTS_MAX},
            "e-mails go to addresses of these domains alone; `*`: to any",
            write=list,
        ),
    },
    _check_mail,
)
_WEBHOOKS = Section(
    WebhookRules,
    {
        "hosts": _hosts(
            "public hosts, by https: `hooks.example.org`, `*.example.org`, `*`, with `:port`", patterns=True
        ),
        "internal": _hosts("hosts that may have private addresses, and may be reached by http", patterns=False),
    },
)
_COMMAND = Section(
    NotifyCommand,
    {
        "name": text("name by which users choose it", most=63),
        "path": Field(_path, STRING, "the program: it gets the message as JSON on its standard input"),
        "open_to": word("who may choose it", get_args(CommandUsers)),
    },
)
NOTIFICATIONS = Section(
    Notifications,
    {
        "server_url": _matching(
            "address of the server in links (the one that it listens on)", _SERVER, "an http(s) URL"
        ),
        "email": section("the server that takes e-mails; without it there are none", _MAIL),
        "webhooks": section("where webhooks may go; by default nowhere", _WEBHOOKS),
        "commands": sections("programs of the server's machine", _COMMAND, COMMANDS_MAX),
    },
    _check,
)
