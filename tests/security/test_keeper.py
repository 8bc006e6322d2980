"""The certificate files: made, renewed, rotated, and nothing touched that is fine."""

import datetime as dt
import threading

import pytest

from penstock.security import authority as ca
from penstock.security.keeper import CertificateKeeper

NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
NAMES = ("localhost", "127.0.0.1")


@pytest.fixture
def keeper(tmp_path):
    return CertificateKeeper(tmp_path / "certificates")


@pytest.fixture
def nodes(tmp_path):
    return {name: tmp_path / "nodes" / name / "certificate.pem" for name in ("n1", "n2")}


def contents(keeper, nodes) -> dict[str, bytes]:
    files = [keeper.authority_file, keeper.trusted_file, keeper.server_file, *nodes.values()]
    return {f"{file.parent.name}/{file.name}": file.read_bytes() for file in files}


def test_a_first_start_makes_everything_and_a_second_changes_nothing(keeper, nodes):
    assert keeper.ensure(NAMES, nodes, NOW)
    before = contents(keeper, nodes)
    assert not keeper.ensure(NAMES, nodes, NOW + DAY)
    assert contents(keeper, nodes) == before


def test_keys_are_their_owners_alone_and_what_is_trusted_is_everybodys(keeper, nodes):
    keeper.ensure(NAMES, nodes, NOW)
    private = [keeper.authority_file, keeper.server_file, *nodes.values()]
    assert {file.stat().st_mode & 0o777 for file in private} == {0o600}
    assert b"PRIVATE" not in keeper.trusted_file.read_bytes()
    assert keeper.trusted_file.stat().st_mode & 0o777 == 0o644


def test_what_is_near_its_end_is_signed_anew_by_the_same_authority(keeper, nodes):
    keeper.ensure(NAMES, nodes, NOW)
    before = contents(keeper, nodes)
    assert keeper.ensure(NAMES, nodes, NOW + ca.NODE_LIFE * 2 / 3)
    after = contents(keeper, nodes)
    assert {name for name in after if after[name] == before[name]} == {
        "certificates/authority.pem",
        "certificates/trusted.pem",
    }


def test_an_authority_near_its_end_is_replaced_and_both_are_trusted(keeper, nodes):
    keeper.ensure(NAMES, nodes, NOW)
    former = keeper.trusted_file.read_bytes()
    keeper.ensure(NAMES, nodes, NOW + ca.AUTHORITY_LIFE * 2 / 3)
    trusted = keeper.trusted_file.read_bytes()
    assert trusted.endswith(former)
    assert len(trusted) > len(former)


def test_after_the_overlap_the_former_authority_is_forgotten(keeper, nodes):
    keeper.ensure(NAMES, nodes, NOW)
    keeper.rotate(NOW)
    keeper.ensure(NAMES, nodes, NOW + ca.OVERLAP)
    assert [one.kind for one in keeper.shown({})] == ["authority", "server"]
    assert keeper.trusted_file.read_bytes().count(b"BEGIN") == 1


def test_another_name_of_the_server_is_taken_into_its_certificate(keeper):
    keeper.ensure(NAMES, {}, NOW)
    assert not keeper.ensure(NAMES[:1], {}, NOW)
    assert keeper.ensure((*NAMES, "10.9.8.7"), {}, NOW)
    assert "10.9.8.7" in keeper.shown({})[1].names


def test_two_servers_that_share_a_folder_leave_each_others_names_in(keeper):
    keeper.ensure(("one.example",), {}, NOW)
    keeper.ensure(("two.example",), {}, NOW)
    assert not keeper.ensure(("one.example",), {}, NOW)
    assert {"one.example", "two.example"} <= set(keeper.shown({})[1].names)


def test_more_names_than_fit_are_not_tried_again_and_again(keeper):
    names = [f"h{i}.example" for i in range(1_000)]
    keeper.ensure(names, {}, NOW)
    assert not keeper.ensure(names, {}, NOW)


def test_a_node_that_somebody_adds_gets_its_certificate_without_touching_others(keeper, nodes):
    keeper.ensure(NAMES, {"n1": nodes["n1"]}, NOW)
    before = keeper.server_file.read_bytes(), nodes["n1"].read_bytes()
    keeper.certify("n2", nodes["n2"], NOW)
    assert [one.subject for one in keeper.shown(nodes) if one.kind == "node"] == ["n1", "n2"]
    assert (keeper.server_file.read_bytes(), nodes["n1"].read_bytes()) == before


def test_a_node_that_is_new_or_whose_file_is_spoilt_gets_its_own(keeper, nodes):
    keeper.ensure(NAMES, {"n1": nodes["n1"]}, NOW)
    nodes["n2"].parent.mkdir(parents=True)
    nodes["n2"].write_bytes(nodes["n1"].read_bytes())  # another node's
    keeper.ensure(NAMES, nodes, NOW)
    nodes["n1"].write_bytes(b"spoilt")
    keeper.ensure(NAMES, nodes, NOW)
    assert [one.subject for one in keeper.shown(nodes) if one.kind == "node"] == ["n1", "n2"]


def test_a_spoilt_authority_stops_the_start_and_says_what_to_do(keeper):
    keeper.ensure(NAMES, {}, NOW)
    keeper.authority_file.write_bytes(b"spoilt")
    with pytest.raises(ca.CertificateError, match=r"authority\.pem: no key") as error:
        keeper.ensure(NAMES, {}, NOW)
    assert "from a backup" in error.value.hint
    assert keeper.authority_file.read_bytes() == b"spoilt"


def test_after_its_file_was_removed_another_authority_signs_everything_anew(keeper, nodes):
    keeper.ensure(NAMES, nodes, NOW)
    keeper.authority_file.unlink()
    keeper.ensure(NAMES, nodes, NOW)
    signer = ca.decoded(keeper.authority_file.read_bytes())
    assert keeper.trusted_file.read_bytes() == ca.bundle([signer.certificate])
    for file in (keeper.server_file, *nodes.values()):
        assert ca.is_signed_by(ca.decoded_signed(file.read_bytes()).certificate, signer.certificate)


def test_a_key_that_others_could_read_is_closed_and_said(keeper, caplog):
    keeper.ensure(NAMES, {}, NOW)
    keeper.authority_file.chmod(0o644)
    keeper.ensure(NAMES, {}, NOW)
    assert keeper.authority_file.stat().st_mode & 0o777 == 0o600
    assert "could be read by others" in caplog.text


def test_a_rotation_that_was_cut_off_after_its_first_step_is_finished(keeper, nodes):
    keeper.ensure(NAMES, nodes, NOW)
    keeper.authority_file.write_bytes(ca.encoded(ca.rotated(ca.decoded(keeper.authority_file.read_bytes()), NOW)))
    assert keeper.ensure(NAMES, nodes, NOW)
    signer = ca.decoded(keeper.authority_file.read_bytes())
    for file in (keeper.server_file, *nodes.values()):
        assert ca.is_signed_by(ca.decoded_signed(file.read_bytes()).certificate, signer.certificate)
    assert keeper.trusted_file.read_bytes().count(b"BEGIN") == 2


def test_rotating_signs_the_servers_certificate_anew_for_the_same_names(keeper):
    keeper.ensure(NAMES, {}, NOW)
    before = keeper.shown({})[1]
    keeper.rotate(NOW)
    after = next(one for one in keeper.shown({}) if one.kind == "server")
    assert (after.names, keeper.drop_former(NOW)) == (before.names, 1)


def test_without_certificates_there_is_nothing_to_rotate(keeper):
    with pytest.raises(ca.CertificateError, match="there are no certificates"):
        keeper.rotate(NOW)


def test_two_that_keep_the_same_files_take_turns(keeper, nodes):
    threads = [threading.Thread(target=keeper.ensure, args=(NAMES, nodes, NOW)) for _ in range(4)]
    threads += [
        threading.Thread(target=CertificateKeeper(keeper.authority_file.parent).ensure, args=(NAMES, nodes, NOW))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not keeper.ensure(NAMES, nodes, NOW)
    assert keeper.trusted_file.read_bytes().count(b"BEGIN") == 1
