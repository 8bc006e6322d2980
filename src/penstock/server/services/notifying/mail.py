"""E-mails, by the SMTP server that an administrator declared.

Names of jobs are text of others: a header gets no line break of theirs (`EmailMessage` refuses it, and `plain` has
taken it out before).
"""

import smtplib
import ssl
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from penstock.core.config.notifications import ADDRESS
from penstock.core.explain.notices import plain
from penstock.core.model.notifications import MailServer
from penstock.server.services.notifying.errors import NotSent

WAIT_S = 15.0
ADDRESS_MAX = 254
SUBJECT_MAX = 200


def check_address(to: str, server: MailServer) -> None:
    """Raises: NotSent (for good) when e-mails to the address are not permitted."""
    if not server.host:
        hint = "an administrator may declare a server: notifications.email in the cluster file"
        raise NotSent("this cluster sends no e-mails", hint=hint)
    if len(to) > ADDRESS_MAX or not ADDRESS.fullmatch(to):
        raise NotSent("this is no e-mail address", hint="such as ann@example.org")
    domain = to.rpartition("@")[2].lower()
    if "*" not in server.domains and domain not in server.domains:
        raise NotSent(
            f"e-mails to {domain[:80]} are not permitted", hint="permitted: " + ", ".join(server.domains[:10])
        )


def mail(server: MailServer, to: str, subject: str, text: str, message_id: str, now_ms: int) -> EmailMessage:
    """Return an e-mail; a mail program shows those of the same id once."""
    made = EmailMessage(policy=SMTP)
    made["From"] = Address("Penstock", addr_spec=server.sender)
    made["To"] = Address(addr_spec=to)
    made["Subject"] = plain(subject, SUBJECT_MAX)
    made["Date"] = format_datetime(datetime.fromtimestamp(now_ms / 1000, UTC))
    made["Message-ID"] = f"<{message_id}@{server.sender.rpartition('@')[2]}>"
    made["Auto-Submitted"] = "auto-generated"
    made["X-Penstock-Id"] = message_id
    made.set_content(text)
    return made


def send_mail(server: MailServer, password: str, made: EmailMessage) -> None:
    """Hand an e-mail to the server. Raises: NotSent."""
    try:
        with _connected(server) as link:
            if server.user:
                link.login(server.user, password)
            link.send_message(made)
    except smtplib.SMTPAuthenticationError:
        raise NotSent("the mail server refuses the login of notifications.email", again=True) from None
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        again = all(400 <= code < 500 for code in codes)
        raise NotSent(f"the mail server refuses the recipient ({codes[0]})", again=again) from None
    except smtplib.SMTPResponseException as error:
        again = not 500 <= error.smtp_code < 600
        raise NotSent(f"the mail server answered {error.smtp_code}", again=again) from None
    except (OSError, smtplib.SMTPException) as error:
        raise NotSent(f"the mail server cannot be used: {type(error).__name__}", again=True) from None


def _connected(server: MailServer) -> smtplib.SMTP:
    context = ssl.create_default_context()
    if server.security == "tls":
        return smtplib.SMTP_SSL(server.host, server.port, timeout=WAIT_S, context=context)
    link = smtplib.SMTP(server.host, server.port, timeout=WAIT_S)
    try:
        if server.security == "starttls":
            link.starttls(context=context)
    except BaseException:
        link.close()
        raise
    return link
