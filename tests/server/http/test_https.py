"""The API over TLS: who is trusted, what is refused, and certificates that change under a running server."""

import contextlib
import datetime as dt
import json
import os
import socket
import ssl
import subprocess
import sys

import pytest

from penstock.client import Client
from penstock.client.endpoints import endpoint_of
from penstock.client.errors import NotTrusted
from penstock.core.model.errors import InvalidInput
from penstock.security import authority as ca
from penstock.security.keeper import CertificateKeeper
from penstock.server.http import transport
from penstock.server.http.transport import Transport, checked, is_loopback, local_host, names_of_server
from penstock.server.services import certificates as security
from penstock.server.services.certificates import CertificateService
from tests.control.rig import Clock
from tests.server.harness import Jobs, Server, environment, until

NOW = dt.datetime.now(dt.UTC)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("tls") / "data", host="0.0.0.0", tls=True, names=["penstock.example"]) as made:
        yield made


@pytest.fixture
def elsewhere(server):
    """Return a client that knows only an address, a token and a file of authorities."""
    opened = []

    def connect(host: str = "127.0.0.1", trust=None, scheme: str = "https") -> Client:
        made = Client.at(f"{scheme}://{host}:{server.port}", token=server.token, ca=trust or server.data.trusted)
        opened.append(made)
        return made

    yield connect
    for made in opened:
        made.close()


def shaken(server, **settings) -> ssl.SSLSocket:
    """Return a connection with these settings of the client's."""
    context = ssl.create_default_context(cafile=server.data.trusted)
    for name, value in settings.items():
        setattr(context, name, value)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain:
        return context.wrap_socket(plain, server_hostname="penstock.example")


def test_jobs_are_run_over_https(server):
    jobs = Jobs(server.client)
    assert jobs.ended(jobs.submit()).state == "succeeded"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_client_elsewhere_trusts_by_the_file_alone(elsewhere, host):
    assert elsewhere(host).healthy()


def test_the_certificate_is_for_every_address_of_the_machine(server):
    assert {"penstock.example", "127.0.0.1", "::1", socket.gethostname()} <= set(
        next(one for one in CertificateKeeper(server.data.certificates).shown({}) if one.kind == "server").names
    )


def test_another_authority_is_not_trusted_and_the_hint_says_what_to_do(elsewhere, tmp_path):
    other = tmp_path / "other.pem"
    other.write_bytes(ca.bundle([ca.new_authority(NOW).certificate]))
    with pytest.raises(NotTrusted, match="cannot be trusted") as refused:
        elsewhere(trust=other).cluster()
    assert "PENSTOCK_CA" in refused.value.hint


def test_a_file_without_authorities_is_named(tmp_path):
    for path, text in ((tmp_path / "missing.pem", None), (tmp_path / "empty.pem", "nothing")):
        if text is not None:
            path.write_text(text)
        with pytest.raises(NotTrusted, match=path.name):
            Client.at("https://localhost", token="t", ca=path)


def test_plain_http_is_not_answered(elsewhere):
    assert not elsewhere(scheme="http").healthy()


@pytest.mark.parametrize(("version", "spoken"), [("TLSv1_1", False), ("TLSv1_2", True), ("TLSv1_3", True)])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_tls_of_1_2_and_1_3_is_spoken_and_no_older_one(server, version, spoken):
    wanted = ssl.TLSVersion[version]
    try:
        with shaken(server, minimum_version=ssl.TLSVersion.MINIMUM_SUPPORTED, maximum_version=wanted) as link:
            found = link.version() == version.replace("_", ".")
    except ssl.SSLError:
        found = False
    assert found is spoken


def test_ciphers_without_forward_secrecy_are_not_taken():
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.set_ciphers(transport.CIPHERS)
    old = [c["name"] for c in made.get_ciphers() if c["protocol"] == "TLSv1.2"]
    assert old
    assert [name for name in old if not name.startswith("ECDHE") or ("GCM" not in name and "POLY" not in name)] == []


def test_half_a_handshake_does_not_hold_up_others(server):
    with socket.create_connection(("127.0.0.1", server.port)) as half:
        half.sendall(b"\x16\x03\x01\x02\x00\x01")
        assert server.client.healthy()


def test_clients_of_the_folder_use_its_socket_and_without_one_the_folders_authorities(server):
    info = json.loads(server.data.server_info.read_bytes())
    assert server.client._at.unix == server.data.root / info.pop("socket")
    server.client.jobs()
    by_tls = Client._to(endpoint_of(info, server.data.root), server.token)
    with contextlib.closing(by_tls):
        assert by_tls._at.security is not None
        by_tls.jobs()


def test_the_commands_reach_a_server_elsewhere(server, tmp_path):
    url = f"https://localhost:{server.port}"
    given = {"PENSTOCK_URL": url, "PENSTOCK_TOKEN": server.token, "PENSTOCK_CA": str(server.data.trusted)}

    def penstock(**variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "penstock.cli.main", "ps"]
        known = environment(server.root, **variables)
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, env=known)

    assert penstock(**given).returncode == 0
    without = penstock(**{name: value for name, value in given.items() if name != "PENSTOCK_CA"})
    assert (without.returncode, "cannot be trusted" in without.stderr) == (4, True)
    assert penstock(PENSTOCK_URL=url).returncode == 2


def test_a_rotated_authority_is_taken_up_without_a_restart(server, elsewhere, tmp_path):
    former = tmp_path / "former.pem"
    former.write_bytes(server.data.trusted.read_bytes())
    jobs = Jobs(server.client)
    job = jobs.submit("sleep 60")
    jobs.state(job, "running")
    keeper = CertificateKeeper(server.data.certificates)
    keeper.rotate(NOW)
    serial = ca.decoded_signed(keeper.server_file.read_bytes()).certificate.serial_number

    def shown() -> bool:
        with shaken(server) as link:
            return int(link.getpeercert()["serialNumber"], 16) == serial

    until(shown, "the new certificate is shown", 30)
    assert elsewhere(trust=former).healthy()  # by way of the bridge
    keeper.drop_former(NOW)
    until(lambda: not elsewhere(trust=former).healthy(), "the former authority is of no use any more", 30)
    assert elsewhere().healthy()
    assert jobs.client.job(job).state == "running"
    jobs.close()


# A certificate from outside.


@pytest.fixture
def given(tmp_path):
    """A certificate and its key in two files, of an authority that nobody here knows."""
    signer = ca.new_authority(NOW)

    def write(*names: str) -> dict[str, str]:
        signed = ca.sign_server(signer, names, NOW)
        (tmp_path / "given.crt").write_bytes(ca.bundle([signed.certificate, signer.certificate]))
        (tmp_path / "given.key").write_bytes(ca.key_pem(signed.key))
        return {"certificate": str(tmp_path / "given.crt"), "key": str(tmp_path / "given.key")}

    return write


def test_a_certificate_from_outside_is_shown_and_trusted_on_this_machine(tmp_path, given):
    with Server(tmp_path / "data", **given("penstock.example")) as server:
        assert server.client.healthy()
        trusted = ssl.create_default_context(cafile=server.data.certificates / "given.pem")
        with socket.create_connection(("127.0.0.1", server.port)) as plain:
            trusted.wrap_socket(plain, server_hostname="penstock.example").close()


def test_a_certificate_that_cannot_be_used_stops_the_start(tmp_path, given):
    files = given("penstock.example")
    (tmp_path / "given.key").write_bytes(ca.key_pem(ca.new_authority(NOW).key))
    server = Server(tmp_path / "data", **files)
    with pytest.raises(AssertionError, match=r"given\.crt and .*given\.key cannot be used"):
        server.start()
    server.close()


# Certificates while the server runs, without one.


def kept(folder, transport_: Transport, clock: Clock) -> CertificateService:
    from penstock.engines.agent import tls

    agents = lambda: tls.server_context(folder / "trusted.pem", folder / "server.pem")
    return CertificateService(folder, dict, transport_, clock, agents)


@pytest.fixture
def clock():
    made = Clock()
    made.now = int(NOW.timestamp() * 1000) - made.unix_ms()
    return made


def looked(made: CertificateService) -> bool:
    """Let the files be looked at once; return whether the settings for agents are others then."""
    import asyncio

    before = made.agents._present
    asyncio.run(made.look())
    return made.agents._present is not before


def test_certificates_are_renewed_while_the_server_runs(tmp_path, clock):
    made = kept(tmp_path, Transport(tls=True), clock)
    assert not looked(made)
    clock.now += int(ca.SERVER_LIFE.total_seconds() * 1000 * 0.7)
    assert looked(made)
    assert not looked(made)


def test_sessions_begin_anew_only_when_other_authorities_are_trusted(tmp_path, clock):
    made = kept(tmp_path, Transport(tls=True), clock)
    begun: list[int] = []
    made.on_change = lambda: begun.append(1)
    (tmp_path / "server.pem").unlink()
    assert (looked(made), begun) == (True, [])
    CertificateKeeper(tmp_path).rotate(NOW)
    assert (looked(made), begun) == (True, [1])


def test_files_that_cannot_be_used_leave_everything_as_it_was(tmp_path, clock, monkeypatch, caplog):
    import asyncio

    made = kept(tmp_path, Transport(tls=True), clock)
    before = made.agents._present
    (tmp_path / "authority.pem").write_bytes(b"spoilt")
    monkeypatch.setattr(security, "CHECK_S", 0.01)

    async def for_a_while() -> None:
        keeping = asyncio.create_task(made.keep())
        while "certificates not renewed" not in caplog.text:
            await asyncio.sleep(0.01)
        keeping.cancel()

    asyncio.run(asyncio.wait_for(for_a_while(), 10))
    assert made.agents._present is before


# Options.


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.invalid"])
def test_plain_http_beyond_this_machine_is_refused(host):
    with pytest.raises(InvalidInput) as refused:
        checked(Transport(host=host))
    if host != "example.invalid":
        assert ("--tls" in refused.value.hint, "--insecure" in refused.value.hint) == (True, True)


@pytest.mark.parametrize(
    "good",
    [
        Transport(),
        Transport(host="localhost"),
        Transport(host="127.8.9.1"),
        Transport(host="::1"),
        Transport(host="0.0.0.0", tls=True),
        Transport(host="0.0.0.0", insecure=True),
        Transport(host="0.0.0.0", certificate="a", key="b"),
    ],
)
def test_what_is_safe_or_wished_for_is_taken(good):
    assert checked(good) is good


@pytest.mark.parametrize(
    "bad", [Transport(certificate="a"), Transport(key="a"), Transport(tls=True, insecure=True, host="0.0.0.0")]
)
def test_options_that_contradict_each_other_are_refused(bad):
    with pytest.raises(InvalidInput):
        checked(bad)


def test_a_name_that_also_stands_for_another_machine_is_not_this_one(monkeypatch):
    monkeypatch.setattr(transport, "_addresses", lambda _: ["127.0.0.1", "192.0.2.1"])
    assert not is_loopback("both.example")


def test_addresses_of_this_machine_are_known_in_any_form():
    assert [is_loopback(h) for h in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "10.0.0.1")] == [True] * 3 + [
        False
    ] * 2
    assert [local_host(h) for h in ("0.0.0.0", "::", "10.0.0.1")] == ["127.0.0.1", "::1", "10.0.0.1"]


def test_names_are_those_asked_for_first_and_none_of_one_link_only():
    found = names_of_server(Transport(host="0.0.0.0", names=("penstock.example",)))
    assert found[0] == "penstock.example"
    assert [name for name in found if name.startswith("fe80")] == []


@pytest.mark.parametrize("url", ["ftp://x", "x", "https://", "https://x/path", "https://x:port", "http://192.0.2.1"])
def test_an_address_that_cannot_be_used_is_refused(url):
    with pytest.raises(InvalidInput):
        Client.at(url, token="t")


def test_plain_http_elsewhere_is_used_where_that_is_wished_for():
    client = Client.at("http://192.0.2.1", token="t", insecure=True)
    assert (client._at.host, client._at.port, client._at.security) == ("192.0.2.1", 80, None)


def test_a_server_that_would_be_open_does_not_start(tmp_path):
    options = {"data": str(tmp_path / "data"), "host": "0.0.0.0"}
    command = [sys.executable, "-m", "penstock.wire", json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment(tmp_path))
    assert (done.returncode, "--tls" in done.stderr, os.listdir(tmp_path)) == (2, True, [])
