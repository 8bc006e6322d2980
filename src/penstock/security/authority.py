"""An authority as a value: made, rotated, and asked to sign. No files and no clock in here.

Theory. An authority is a key with its own certificate, and a chain of former ones. When it is rotated, the former
key signs one last certificate, the *bridge*, which says that the new key may sign for it; then it is thrown away.
So a client with only the former certificate still accepts what the new key signs, by way of the bridge, until the
bridge ends; and a stolen former key is worth nothing once its certificate has been dropped.

Everything is ECDSA on P-256 with SHA-256: every TLS library that is in use can check it.
"""

import contextlib
import datetime as dt
import hashlib
import ipaddress
from collections.abc import Iterable, Sequence

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from penstock.core.model.errors import PenstockError
from penstock.core.model.ids import SERVER_IDENTITY, NodeName, is_node_name, node_identity

AUTHORITY_LIFE = dt.timedelta(days=3650)
SERVER_LIFE = dt.timedelta(days=30)
NODE_LIFE = dt.timedelta(days=30)
OVERLAP = dt.timedelta(days=90)
"""Time for which a former authority is trusted after a rotation."""
BACKDATED = dt.timedelta(hours=1)
"""Certificates are valid from this long ago, for machines whose clocks are behind."""
NAMES_MAX = 256
"""Names and addresses in one certificate; those of the machine come last and are cut off."""

_COMMON_NAME_MAX = 64
_ENCODED = serialization.Encoding.PEM


class CertificateError(PenstockError):
    """Certificate files cannot be read, or do not belong together."""

    code = "bad_certificate"


class Former(msgspec.Struct, frozen=True):
    """A replaced authority: its certificate, and the last one that it has signed."""

    certificate: x509.Certificate
    bridge: x509.Certificate


class Authority(msgspec.Struct, frozen=True):
    """Who signs now, and who did before, the latest first."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    former: tuple[Former, ...] = ()


class Signed(msgspec.Struct, frozen=True):
    """A certificate with its key, and its chain, sent along so that every client can check it."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    along: tuple[x509.Certificate, ...] = ()

    def pem(self) -> bytes:
        """Return key and certificates in one text, as TLS libraries read it."""
        return key_pem(self.key) + b"".join(c.public_bytes(_ENCODED) for c in (self.certificate, *self.along))


class IssuedCertificate(msgspec.Struct, frozen=True):
    """The public part of a certificate that another authority has signed, with its chain."""

    certificate: x509.Certificate
    names: tuple[str, ...]
    pem: bytes


def new_authority(now: dt.datetime) -> Authority:
    """Return a new authority, not yet trusted."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    name = _name(f"Penstock authority {serial:040x}"[:_COMMON_NAME_MAX])
    return Authority(key, _authority_certificate(name, key, name, key, now, now + AUTHORITY_LIFE))


def rotated(authority: Authority, now: dt.datetime) -> Authority:
    """Return a new authority; the present one is trusted for `OVERLAP` more, and its key is in it no longer.

    One that has ended is dropped: no client trusts it any more.
    """
    fresh = new_authority(now)
    if now >= authority.certificate.not_valid_after_utc:
        return fresh
    ends = min(now + OVERLAP, authority.certificate.not_valid_after_utc)
    old = authority.certificate.subject
    bridge = _authority_certificate(fresh.certificate.subject, fresh.key, old, authority.key, now, ends)
    former = (Former(authority.certificate, bridge), *authority.former)
    return Authority(fresh.key, fresh.certificate, former)


def without_former(authority: Authority, now: dt.datetime | None = None) -> Authority:
    """Return the authority without former ones: those whose time is over, or all when no time is given."""
    kept = tuple(f for f in authority.former if now is not None and now < f.bridge.not_valid_after_utc)
    return Authority(authority.key, authority.certificate, kept)


def trusted(authority: Authority) -> tuple[x509.Certificate, ...]:
    """Return the certificates that a client has to trust."""
    return (authority.certificate, *(f.certificate for f in authority.former))


def sign_server(authority: Authority, names: Sequence[str], now: dt.datetime) -> Signed:
    """Return a certificate for a server that is reached under these names and addresses."""
    wanted: list[x509.GeneralName] = [x509.DNSName(SERVER_IDENTITY), *map(_general_name, names)]
    common = next((n for n in names if not _is_address(n)), SERVER_IDENTITY)
    use, key = ExtendedKeyUsageOID.SERVER_AUTH, ec.generate_private_key(ec.SECP256R1())
    return Signed(key, *_signed(authority, key.public_key(), common, wanted[:NAMES_MAX], use, now, SERVER_LIFE))


def sign_node(authority: Authority, node: NodeName, now: dt.datetime, life: dt.timedelta = NODE_LIFE) -> Signed:
    """Return a certificate with which an agent may speak for `node`, and for nothing else.

    Raises: CertificateError for a name that no node can have.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    return Signed(key, *_signed_node(authority, node, key.public_key(), now, life))


def sign_request(
    authority: Authority, node: NodeName, request: bytes, now: dt.datetime
) -> tuple[IssuedCertificate, ec.EllipticCurvePublicKey]:
    """Return a certificate of `node` for the key in a request (PEM), and that key; it may ask for nothing else.

    Raises: CertificateError for a request that is none, or is not signed with its key.
    """
    try:
        asked = x509.load_pem_x509_csr(request)
        key = asked.public_key()
        sound = asked.is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CertificateError(f"this is no request for a certificate: {error}") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1) or not sound:
        raise CertificateError("the request is not signed with a key on P-256, its own")
    certificate, along = _signed_node(authority, node, key, now, NODE_LIFE)
    return IssuedCertificate(certificate, tuple(names_of(certificate)), bundle((certificate, *along))), key


def new_request(node: NodeName) -> tuple[bytes, bytes]:
    """Return a new key and a request for its certificate, both as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(_name(node)).sign(key, hashes.SHA256())
    return key_pem(key), request.public_bytes(_ENCODED)


def fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """Return what a public key is known by: SHA-256 of its usual form, in hexadecimal."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(serialization.Encoding.DER, form)).hexdigest()


def fingerprint_in(certificate: bytes) -> str:
    """Return the fingerprint of the key of a certificate (DER), '' where it has none of ours."""
    with contextlib.suppress(ValueError, UnsupportedAlgorithm):
        key = x509.load_der_x509_certificate(certificate).public_key()
        return fingerprint(key) if isinstance(key, ec.EllipticCurvePublicKey) else ""
    return ""


def renewed_from(certificate: x509.Certificate) -> dt.datetime:
    """Return from when on less than a third of its life is left."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return end - (end - begin) / 3


def renewal_due(certificate: x509.Certificate, now: dt.datetime) -> bool:
    """Return whether less than a third of its life is left, or its life has not begun (a clock was put back)."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now < begin or end - now < (end - begin) / 3


def is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Return whether the authority has signed the certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def names_of(certificate: x509.Certificate) -> list[str]:
    """Return the names and addresses a certificate is for, as text, in its order."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in found]


def encoded(authority: Authority) -> bytes:
    """Return key and certificates in one text: the key first, each former authority with its bridge after it."""
    known = [authority.certificate]
    for former in authority.former:
        known += [former.certificate, former.bridge]
    return key_pem(authority.key) + bundle(known)


def decoded(text: bytes) -> Authority:
    """Return the authority that `encoded` has written.

    Raises: CertificateError when it is none, or when key and certificate do not belong together.
    """
    own = decoded_signed(text)
    rest = own.along
    if len(rest) % 2 or not is_signed_by(own.certificate, own.certificate):
        raise CertificateError("the certificates after the key are not those of an authority")
    former = tuple(Former(rest[i], rest[i + 1]) for i in range(0, len(rest), 2))
    return Authority(own.key, own.certificate, former)


def decoded_signed(text: bytes) -> Signed:
    """Return a certificate with its key, as `Signed.pem` has written it.

    Raises: CertificateError when it is none, or when key and certificate do not belong together.
    """
    try:
        key = serialization.load_pem_private_key(text, None)
        first, *along = x509.load_pem_x509_certificates(text)
    except (ValueError, TypeError) as error:
        raise CertificateError(f"no key with its certificate: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or first.public_key() != key.public_key():
        raise CertificateError("key and certificate do not belong together")
    return Signed(key, first, tuple(along))


def given_chain(text: bytes) -> IssuedCertificate:
    """Return the certificates in a text, skipping all else.

    Raises: CertificateError when there is none, or it says no name under which it can be checked.
    """
    try:
        found = x509.load_pem_x509_certificates(text)
    except ValueError as error:
        raise CertificateError(f"no certificate: {error}") from error
    names = tuple(names_of(found[0]))
    if not names:
        raise CertificateError("the certificate has no subject alternative name: clients could not check it")
    return IssuedCertificate(found[0], names, bundle(found))


def bundle(certificates: Iterable[x509.Certificate]) -> bytes:
    """Return certificates in one text."""
    return b"".join(certificate.public_bytes(_ENCODED) for certificate in certificates)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_ENCODED, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:_COMMON_NAME_MAX])])


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _general_name(name: str) -> x509.GeneralName:
    """Return a name or an address as certificates hold it. Raises: CertificateError when it can be neither."""
    if _is_address(name):
        return x509.IPAddress(ipaddress.ip_address(name))
    try:
        return x509.DNSName(name)
    except ValueError as error:
        hint = "write it in ASCII, as it is in the name service"
        raise CertificateError(f"'{name}' cannot be in a certificate: {error}", hint=hint) from error


def _builder(
    subject: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    begin: dt.datetime,
    end: dt.datetime,
) -> x509.CertificateBuilder:
    known = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(known, critical=False)
    )


def _authority_certificate(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    now: dt.datetime,
    end: dt.datetime,
) -> x509.Certificate:
    builder = _builder(subject, key.public_key(), issuer, issuer_key, now - BACKDATED, end)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return builder.add_extension(_usage(signs=True), critical=True).sign(issuer_key, hashes.SHA256())


def _signed_node(
    authority: Authority, node: NodeName, key: ec.EllipticCurvePublicKey, now: dt.datetime, life: dt.timedelta
) -> tuple[x509.Certificate, tuple[x509.Certificate, ...]]:
    if not is_node_name(node):
        raise CertificateError(f"{node!r} cannot be the name of a node")
    names = [x509.UniformResourceIdentifier(node_identity(node))]
    return _signed(authority, key, node, names, ExtendedKeyUsageOID.CLIENT_AUTH, now, life)


def _signed(
    authority: Authority,
    key: ec.EllipticCurvePublicKey,
    common: str,
    names: Sequence[x509.GeneralName],
    use: x509.ObjectIdentifier,
    now: dt.datetime,
    life: dt.timedelta,
) -> tuple[x509.Certificate, tuple[x509.Certificate, ...]]:
    """Return a certificate for a key, and the bridges that clients of former authorities need with it."""
    begin = now - BACKDATED
    end = min(begin + life, authority.certificate.not_valid_after_utc)
    builder = _builder(_name(common), key, authority.certificate.subject, authority.key, begin, end)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(authority.key, hashes.SHA256()), tuple(former.bridge for former in authority.former)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
