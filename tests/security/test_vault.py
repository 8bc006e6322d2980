"""Sealing: what is sealed is opened by the same key, for the same holder, and by nothing else."""

import base64
import stat

import pytest
from msgspec.structs import replace

from penstock.core.model.secrets import Secret
from penstock.security.vault import Vault, VaultError

SECRET = Secret("KEY", tenant="vision")
VALUE = "p\u00e4ssword\n"


@pytest.fixture
def vault(tmp_path):
    return Vault(tmp_path / "secrets.key")


def test_a_value_comes_back_and_is_nowhere_to_be_read(vault, tmp_path):
    sealed = vault.seal(SECRET, VALUE)
    assert vault.open(sealed) == Vault(tmp_path / "secrets.key").open(sealed) == VALUE
    raw = base64.b64decode(sealed.sealed)
    assert VALUE.encode() not in raw
    assert len(raw) == 12 + len(VALUE.encode()) + 16
    assert vault.seal(SECRET, VALUE).sealed != sealed.sealed
    assert stat.S_IMODE((tmp_path / "secrets.key").stat().st_mode) == 0o600


def test_a_token_is_the_same_for_one_purpose_as_long_as_the_key_is(vault, tmp_path):
    token = vault.token("a")
    assert len(token) == 64
    assert Vault(tmp_path / "secrets.key").token("a") == token != vault.token("b")
    vault.add_key()
    assert vault.token("a") != token


@pytest.mark.parametrize("other", [{"name": "KEY2"}, {"tenant": "speech"}, {"tenant": "", "owner": "vision"}])
def test_what_is_sealed_for_one_holder_cannot_be_opened_for_another(vault, other):
    with pytest.raises(VaultError, match="is not what was sealed"):
        vault.open(replace(vault.seal(SECRET, VALUE), **other))


def test_a_changed_bit_is_noticed(vault):
    sealed = vault.seal(SECRET, VALUE)
    raw = bytearray(base64.b64decode(sealed.sealed))
    for at in range(len(raw)):
        changed = bytes(raw[:at]) + bytes([raw[at] ^ 1]) + bytes(raw[at + 1 :])
        with pytest.raises(VaultError):
            vault.open(replace(sealed, sealed=base64.b64encode(changed).decode()))


def test_a_former_key_opens_until_it_is_thrown_away(vault, tmp_path):
    former = vault.seal(SECRET, VALUE)
    vault.add_key()
    newer = vault.seal(SECRET, VALUE)
    assert former.key_id != newer.key_id
    assert vault.open(former) == vault.open(newer) == VALUE
    assert vault.keep({former.key_id}) == 0
    assert vault.keep(set()) == 1
    assert vault.open(newer) == VALUE
    for one in (vault, Vault(tmp_path / "secrets.key")):
        with pytest.raises(VaultError, match=r"the key of secret KEY of tenant vision is not in secrets\.key"):
            one.open(former)


def test_two_servers_on_one_folder_open_what_either_has_sealed(vault, tmp_path):
    other = Vault(tmp_path / "secrets.key")
    first = vault.seal(SECRET, VALUE)
    other.add_key()
    second = other.seal(SECRET, "two")
    assert (other.open(first), vault.open(second)) == (VALUE, "two")


def test_the_file_may_be_a_link_to_another_place(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "secrets.key").symlink_to(tmp_path / "elsewhere" / "keys")
    vault = Vault(tmp_path / "secrets.key")
    sealed = vault.seal(SECRET, VALUE)
    vault.add_key()
    assert (tmp_path / "secrets.key").is_symlink()
    assert Vault(tmp_path / "elsewhere" / "keys").open(sealed) == VALUE


def test_a_spoilt_file_is_told_and_not_overwritten(vault, tmp_path):
    (tmp_path / "secrets.key").write_text("[]]")
    for attempt in (lambda: vault.seal(SECRET, VALUE), vault.add_key, lambda: vault.keep(set())):
        with pytest.raises(VaultError, match="cannot be read"):
            attempt()
    assert (tmp_path / "secrets.key").read_text() == "[]]"
