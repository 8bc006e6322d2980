"""The certificate files of one data folder: made when they are missing, renewed in time, replaced whole.

`authority.pem` is the source of truth; all else is signed again where it does not fit. Server and command line
may do this at the same time: a lock makes them take turns.
"""

import contextlib
import datetime as dt
import fcntl
import logging
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from cryptography import x509

from penstock.core.model.ids import SERVER_IDENTITY, NodeName, node_identity
from penstock.privatefiles import PASSED, make_folder, open_own, write_whole
from penstock.security import authority as ca
from penstock.security.authority import CertificateError

log = logging.getLogger(__name__)


class Shown(msgspec.Struct, frozen=True):
    """One certificate, for people. Times are unix milliseconds."""

    kind: str
    """authority, former authority, server, node or given (from outside, for the API)."""
    subject: str
    names: list[str]
    not_before_ms: int
    not_after_ms: int
    renewed_from_ms: int
    """From then on less than a third of its life is left; 0 where nothing is renewed here."""
    file: str


class CertificateKeeper:
    """Keeps the certificates in `folder`, and those of nodes where `nodes` says."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.authority_file = folder / "authority.pem"
        self.trusted_file = folder / "trusted.pem"
        self.server_file = folder / "server.pem"
        self.given_file = folder / "given.pem"
        """The public part of a certificate from outside, where the API has one."""

    def ensure(self, names: Sequence[str], nodes: Mapping[NodeName, Path], now: dt.datetime) -> bool:
        """Make, renew or replace certificates that are missing, near their end, or wrong; return whether any was.

        Args:
            names: of the server: host names and addresses.
            nodes: where the certificate of each node belongs.
        Raises: CertificateError when the authority's file cannot be read; OSError.
        """
        with self._turn():
            known = self._read()
            changed = known is None
            kept = ca.new_authority(now) if known is None else ca.without_former(known, now)
            if ca.renewal_due(kept.certificate, now):
                log.info("the certificate authority is replaced", extra={"overlap_days": ca.OVERLAP.days})
                kept = ca.rotated(kept, now)
            if kept != known:
                self._write(kept)
                changed = True
            return self._sign(kept, names, nodes, now) or changed

    def certify(self, node: NodeName, path: Path, now: dt.datetime) -> None:
        """Give one node its certificate, if it has none that will do. Raises: CertificateError; OSError."""
        with self._turn():
            self._sign_nodes(self._present(), {node: path}, now)

    def sign_join(self, node: NodeName, now: dt.datetime, life: dt.timedelta) -> tuple[bytes, str]:
        """Return a new key with its certificate (PEM), by which a machine may join as `node`, and its fingerprint.

        Raises: CertificateError; OSError.
        """
        with self._turn():
            signed = ca.sign_node(self._present(), node, now, life + ca.BACKDATED)
        return signed.pem(), ca.fingerprint(signed.key.public_key())

    def sign_request(self, node: NodeName, request: bytes, now: dt.datetime) -> tuple[bytes, str, int]:
        """Return a node's certificate for its own key (PEM), the key's fingerprint, and when to ask again (unix ms).

        Raises: CertificateError; OSError.
        """
        with self._turn():
            issued, key = ca.sign_request(self._present(), node, request, now)
        return issued.pem, ca.fingerprint(key), _ms(ca.renewed_from(issued.certificate))

    def rotate(self, now: dt.datetime) -> None:
        """Replace the authority: the former one stays trusted for a while. Its certificates are signed anew."""
        with self._turn():
            self._replace(ca.rotated(self._present(), now), now)

    def drop_former(self, now: dt.datetime) -> int:
        """Trust no former authority any more; return how many there were."""
        with self._turn():
            known = self._present()
            if known.former:
                self._replace(ca.without_former(known), now)
            return len(known.former)

    def shown(self, nodes: Mapping[NodeName, Path]) -> list[Shown]:
        """Return all certificates: subject, validity, file. Raises: CertificateError."""
        with self._turn():
            known = self._present()
            file = str(self.authority_file)
            found = [_shown("authority", known.certificate, file)]
            found += [_former(former, file) for former in known.former]
            leaves = [("server", self.server_file), *(("node", path) for _, path in sorted(nodes.items()))]
            for kind, path in leaves:
                signed = _read_signed(path)
                if signed is not None:
                    found.append(_shown(kind, signed.certificate, str(path)))
            with contextlib.suppress(FileNotFoundError, CertificateError):
                given = ca.given_chain(self.given_file.read_bytes())
                shown = _shown("given", given.certificate, str(self.given_file))
                found.append(msgspec.structs.replace(shown, renewed_from_ms=0))
            return found

    # The files.

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        make_folder(self._folder, PASSED)
        descriptor = open_own(self._folder / "lock", os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _present(self) -> ca.Authority:
        known = self._read()
        if known is None:
            hint = "penstock up makes them"
            raise CertificateError(f"there are no certificates in {self._folder}", hint=hint)
        return known

    def _read(self) -> ca.Authority | None:
        try:
            text = self.authority_file.read_bytes()
        except FileNotFoundError:
            return None
        if stat.S_IMODE(self.authority_file.stat().st_mode) & 0o077:
            log.warning("the authority's key could be read by others; penstock certificates --rotate makes a new one")
            self.authority_file.chmod(0o600)
        try:
            return ca.decoded(text)
        except CertificateError as error:
            hint = "take it from a backup; or remove it: a new one is made then, and clients need its certificate"
            raise CertificateError(f"{self.authority_file}: {error.message}", hint=hint) from error

    def _write(self, authority: ca.Authority) -> None:
        """Keep the authority; clients have to trust it before it signs anything."""
        write_whole(self.authority_file, ca.encoded(authority), 0o600)
        self._publish(authority)

    def _publish(self, authority: ca.Authority) -> bool:
        text = ca.bundle(ca.trusted(authority))
        with contextlib.suppress(FileNotFoundError):
            if self.trusted_file.read_bytes() == text:
                return False
        write_whole(self.trusted_file, text, 0o644)
        return True

    def _replace(self, authority: ca.Authority, now: dt.datetime) -> None:
        """Put another authority in place, with a server certificate for the same names.

        Nodes' certificates follow with the next `ensure`: the server and its agents trust both until then.
        """
        former = _read_signed(self.server_file)
        self._write(authority)
        if former is not None:
            self._sign(authority, _wanted_names(former.certificate), {}, now)

    def _sign(
        self, authority: ca.Authority, names: Sequence[str], nodes: Mapping[NodeName, Path], now: dt.datetime
    ) -> bool:
        changed = self._publish(authority)
        server = _read_signed(self.server_file)
        known = _wanted_names(server.certificate) if server is not None else []
        if server is None or _outdated(server, authority, now):
            write_whole(self.server_file, ca.sign_server(authority, names, now).pem(), 0o600)
            changed = True
        elif not set(names) <= set(known):  # known names stay: they may be of another server that shares the folder
            both = list(dict.fromkeys([*names, *known]))
            if set(both[: ca.NAMES_MAX - 1]) - set(known):
                write_whole(self.server_file, ca.sign_server(authority, both, now).pem(), 0o600)
                changed = True
        return self._sign_nodes(authority, nodes, now) or changed

    def _sign_nodes(self, authority: ca.Authority, nodes: Mapping[NodeName, Path], now: dt.datetime) -> bool:
        changed = False
        for node, path in nodes.items():
            signed = _read_signed(path)
            fits = signed is not None and not _outdated(signed, authority, now)
            if signed is None or not fits or ca.names_of(signed.certificate) != [node_identity(node)]:
                make_folder(path.parent)
                write_whole(path, ca.sign_node(authority, node, now).pem(), 0o600)
                changed = True
        return changed


def _read_signed(path: Path) -> ca.Signed | None:
    """Return a file's certificate, or None when it is missing or spoilt: it can be signed anew."""
    with contextlib.suppress(FileNotFoundError, CertificateError):
        return ca.decoded_signed(path.read_bytes())
    return None


def _outdated(signed: ca.Signed, authority: ca.Authority, now: dt.datetime) -> bool:
    bridges = tuple(former.bridge for former in authority.former)
    issued = ca.is_signed_by(signed.certificate, authority.certificate)
    return not issued or signed.along != bridges or ca.renewal_due(signed.certificate, now)


def _wanted_names(certificate: x509.Certificate) -> list[str]:
    return [name for name in ca.names_of(certificate) if name != SERVER_IDENTITY]


def _ms(moment: dt.datetime) -> int:
    return int(moment.timestamp() * 1000)


def _shown(kind: str, certificate: x509.Certificate, file: str) -> Shown:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    subject = certificate.subject.rfc4514_string().removeprefix("CN=")
    renewed_ms = _ms(end - (end - begin) / 3)
    return Shown(kind, subject, ca.names_of(certificate), _ms(begin), _ms(end), renewed_ms, file)


def _former(former: ca.Former, file: str) -> Shown:
    shown = _shown("former authority", former.certificate, file)
    return msgspec.structs.replace(shown, not_after_ms=_ms(former.bridge.not_valid_after_utc), renewed_from_ms=0)
