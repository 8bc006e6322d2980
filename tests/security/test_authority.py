"""What an authority signs, who accepts it, and for how long; checked by OpenSSL, as clients check it."""

import datetime as dt
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given
from hypothesis import strategies as st

from penstock.security import authority as ca

NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


@pytest.fixture(scope="module")
def made():
    return ca.new_authority(NOW)


def accepts(trusted: bytes, signed: ca.Signed, tmp_path, name: str = "localhost") -> bool:
    """Return whether a client that trusts these authorities talks to a server with this certificate."""
    own = tmp_path / "own.pem"
    own.write_bytes(signed.pem())
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(own)
    client = ssl.create_default_context(cadata=trusted.decode())
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(3):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
    return True


def trust(*certificates: x509.Certificate) -> bytes:
    return ca.bundle(certificates)


def life(certificate: x509.Certificate) -> dt.timedelta:
    return certificate.not_valid_after_utc - certificate.not_valid_before_utc


@pytest.fixture
def today():
    """The present: OpenSSL looks at the machine's clock."""
    return dt.datetime.now(dt.UTC)


def test_a_server_is_accepted_by_the_names_it_was_signed_for(today, tmp_path):
    signer = ca.new_authority(today)
    signed = ca.sign_server(signer, ["node.example", "10.1.2.3", "::1"], today)
    trusted = trust(*ca.trusted(signer))
    assert [accepts(trusted, signed, tmp_path, name) for name in ("node.example", "10.1.2.3", "::1")] == [True] * 3
    assert [accepts(trusted, signed, tmp_path, name) for name in ("other.example", "10.1.2.4")] == [False] * 2


def test_who_trusts_only_the_former_authority_accepts_what_the_new_one_signs(today, tmp_path):
    first = ca.new_authority(today - 60 * DAY)
    second = ca.rotated(first, today - 30 * DAY)
    third = ca.rotated(second, today)
    signed = ca.sign_server(third, ["localhost"], today)
    for known in (first, second, third):
        assert accepts(trust(known.certificate), signed, tmp_path)


def test_a_dropped_authority_is_accepted_no_more(today, tmp_path):
    first = ca.new_authority(today)
    third = ca.without_former(ca.rotated(first, today))
    signed = ca.sign_server(third, ["localhost"], today)
    assert not accepts(trust(first.certificate), signed, tmp_path)
    assert not accepts(trust(*ca.trusted(third)), ca.sign_server(first, ["localhost"], today), tmp_path)


def test_the_former_key_is_thrown_away(made):
    after = ca.rotated(made, NOW)
    assert ca.key_pem(made.key) not in ca.encoded(after)
    assert ca.encoded(after).count(b"PRIVATE KEY") == 2  # begin and end of one


def test_a_former_authority_is_trusted_for_the_overlap_and_no_longer(made):
    after = ca.rotated(made, NOW)
    last = NOW + ca.OVERLAP - DAY
    assert ca.trusted(ca.without_former(after, last)) == (after.certificate, made.certificate)
    assert ca.trusted(ca.without_former(after, NOW + ca.OVERLAP)) == (after.certificate,)


def test_a_node_may_only_be_a_client_and_a_server_only_a_server(made):
    def uses(signed: ca.Signed) -> list[x509.ObjectIdentifier]:
        return list(signed.certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)

    assert uses(ca.sign_node(made, "n1", NOW)) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert uses(ca.sign_server(made, [], NOW)) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_what_is_signed_cannot_sign(made):
    for signed in (ca.sign_node(made, "n1", NOW), ca.sign_server(made, [], NOW)):
        constraints = signed.certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        assert (constraints.critical, constraints.value.ca) == (True, False)


def test_nothing_outlives_its_authority(made):
    end = made.certificate.not_valid_after_utc
    assert ca.sign_node(made, "n1", end - DAY).certificate.not_valid_after_utc == end


def test_an_authority_that_has_ended_leaves_nothing_behind(made):
    after = ca.rotated(made, made.certificate.not_valid_after_utc)
    assert ca.trusted(after) == (after.certificate,)


@pytest.mark.parametrize(("third", "due"), [(3.1, False), (2.9, True)])
def test_renewal_is_due_before_a_third_of_the_life_is_left(made, third, due):
    signed = ca.sign_node(made, "n1", NOW).certificate
    left = life(signed) * third / 9
    assert ca.renewal_due(signed, signed.not_valid_after_utc - left) is due


def test_renewal_is_due_when_the_clock_was_put_back(made):
    signed = ca.sign_node(made, "n1", NOW).certificate
    assert ca.renewal_due(signed, NOW - ca.BACKDATED - DAY)
    assert not ca.renewal_due(signed, NOW)


def test_an_authority_is_read_as_it_was_written(made):
    twice = ca.rotated(ca.rotated(made, NOW), NOW + DAY)
    found = ca.decoded(ca.encoded(twice))
    assert (found.certificate, found.former, ca.key_pem(found.key)) == (
        twice.certificate,
        twice.former,
        ca.key_pem(twice.key),
    )


@pytest.mark.parametrize(
    "spoilt",
    [
        lambda text: b"",
        lambda text: text[: len(text) // 2],
        lambda text: text.replace(b"PRIVATE", b"PUBLIC"),
        lambda text: ca.key_pem(ca.new_authority(NOW).key) + text[text.index(b"-----BEGIN CERT") :],
        lambda text: text + trust(ca.new_authority(NOW).certificate),
        lambda text: b"\xff" * 100,
    ],
)
def test_a_spoilt_authority_is_an_error_and_never_a_wrong_one(made, spoilt):
    with pytest.raises(ca.CertificateError):
        ca.decoded(spoilt(ca.encoded(made)))


def test_a_leaf_is_no_authority(made):
    with pytest.raises(ca.CertificateError):
        ca.decoded(ca.sign_node(made, "n1", NOW).pem())


def test_a_name_that_no_certificate_can_hold_is_an_error_with_a_hint(made):
    with pytest.raises(ca.CertificateError, match="'knoten-ä' cannot be in a certificate") as error:
        ca.sign_server(made, ["knoten-ä"], NOW)
    assert "ASCII" in error.value.hint


def test_the_names_of_one_certificate_are_bounded(made):
    signed = ca.sign_server(made, [f"h{i}.example" for i in range(1_000)], NOW)
    assert len(ca.names_of(signed.certificate)) == ca.NAMES_MAX


def test_a_given_certificate_tells_its_names_and_nothing_of_its_key(made):
    signed = ca.sign_server(made, ["penstock.example"], NOW)
    given_one = ca.given_chain(signed.pem())
    assert "penstock.example" in given_one.names
    assert b"PRIVATE" not in given_one.pem


def test_a_given_certificate_without_names_is_refused(made):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "old style")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(NOW).not_valid_after(NOW + DAY)
    from cryptography.hazmat.primitives import hashes

    for text in (builder.sign(key, hashes.SHA256()).public_bytes(ca._ENCODED), b"no certificate"):
        with pytest.raises(ca.CertificateError):
            ca.given_chain(text)


@given(days=st.lists(st.integers(0, 4_000), max_size=6))
def test_at_any_time_all_that_is_trusted_is_valid_and_chains_to_what_signs(days):
    now = NOW
    kept = ca.new_authority(now)
    for step in days:
        now += step * DAY
        kept = ca.without_former(kept, now)
        if ca.renewal_due(kept.certificate, now):
            kept = ca.rotated(kept, now)
        assert all(c.not_valid_before_utc <= now < c.not_valid_after_utc for c in ca.trusted(kept)[:1])
        signers = [kept.certificate, *(f.bridge for f in kept.former)]
        for former, signer in zip(kept.former, signers, strict=False):
            assert former.bridge.subject == signer.subject
            assert ca.is_signed_by(former.bridge, former.certificate)
