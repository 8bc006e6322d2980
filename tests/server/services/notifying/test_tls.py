"""Receivers by TLS: certificates are checked, the password of the mail server comes from the vault."""

import contextlib
import datetime as dt
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import AuthResult

from penstock.security import authority as ca
from penstock.testing.builders import cluster_file
from penstock.testing.server import InProcessServer
from tests.server.services.notifying.receivers import http_receiver, smtp_receiver

PASSWORD = "pw_Zk81hQwx"
URL_USERS = [{"name": "ann", "tenants": {"default": "member"}}]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, Path]:
    """Return the settings of a server called `localhost`, and the file of the authority that signed it."""
    folder, now = tmp_path_factory.mktemp("tls"), dt.datetime.now(dt.UTC)
    made = ca.new_authority(now)
    (folder / "server.pem").write_bytes(ca.sign_server(made, ["localhost"], now).pem())
    (folder / "ca.pem").write_bytes(ca.bundle(ca.trusted(made)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return context, folder / "ca.pem"


@contextlib.contextmanager
def served(**notifications: Any) -> Iterator[InProcessServer]:
    with InProcessServer(cluster_file(1, 1) | {"users": URL_USERS, "notifications": notifications}) as server:
        yield server


def tried(server: InProcessServer, channel: str, to: str) -> tuple[bool, str]:
    server.client.set_notification("n", {"channel": channel, "to": to, "events": ["end"]})
    found = server.client.test_notification("n")
    return found.sent, found.error


def test_a_webhook_by_https_needs_a_trusted_certificate_of_its_name(certificate, monkeypatch):
    context, trusted = certificate
    with http_receiver(context) as http:
        hosts = [f"localhost:{http.port}", f"127.0.0.1:{http.port}"]
        with served(webhooks={"internal": hosts}) as server:
            right, wrong = (f"https://{host}/x" for host in hosts)
            refused = "the certificate of localhost is not one that this server trusts"
            assert tried(server, "webhook", right) == (False, refused)
            monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
            assert tried(server, "webhook", right) == (True, "")
            assert tried(server, "webhook", wrong) == (False, refused.replace("localhost", "127.0.0.1"))
            assert len(http.got) == 1


def test_the_password_of_a_mail_server_is_an_administrators_secret_and_goes_by_tls_alone(certificate, monkeypatch):
    context, trusted = certificate
    seen = []

    def check(_server: Any, _session: Any, _envelope: Any, mechanism: str, data: Any) -> AuthResult:
        seen.append((mechanism, data.login, data.password))
        return AuthResult(success=data.password == PASSWORD.encode(), handled=False)

    with smtp_receiver(tls_context=context, authenticator=check, auth_required=True) as smtp:
        mail = {"host": "localhost", "port": smtp.port, "sender": "p@example.org", "domains": ["example.org"]}
        login = {"user": "penstock", "password_secret": "SMTP", "password_owner": "ann"}
        with served(email=mail | login) as server:

            def outcome() -> tuple[bool, str]:
                return tried(server, "email", "ann@example.org")

            assert outcome() == (False, "password_owner of the mail server is no administrator")
            me = server.client.me().user
            server.client.configure({"set": [f"notifications.email.password_owner={me}"]})
            assert outcome() == (False, "the password of the mail server is not set: secret SMTP")
            server.client.set_secret("SMTP", "wrong")
            assert outcome() == (False, "the mail server cannot be used: SSLCertVerificationError")
            monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
            assert outcome() == (False, "the mail server refuses the login of notifications.email")
            server.client.set_secret("SMTP", PASSWORD)
            assert outcome() == (True, "")
            assert "this is a test of notification 'n'" in smtp.mails[0]["Subject"]
    assert {login for _, login, _ in seen} == {b"penstock"}


def test_a_mail_server_that_offers_no_tls_gets_nothing(monkeypatch):
    with smtp_receiver() as smtp:
        mail = {"host": "localhost", "port": smtp.port, "sender": "p@example.org", "domains": ["*"]}
        with served(email=mail) as server:
            error = "the mail server cannot be used: SMTPNotSupportedError"
            assert tried(server, "email", "ann@example.org") == (False, error)
    assert smtp.mails == []
