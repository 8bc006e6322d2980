"""Whose files are trusted: those of root and of the user, on a way that nobody else can change."""

import os
import stat
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.trust import check_data, close_secrets
from penstock.privatefiles import (
    ACCESS_LIST,
    LEFT_AFTER_S,
    NotPrivate,
    check,
    make_folder,
    new_beside,
    open_own,
    problem_of,
    write_whole,
)

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users")
NOBODY, DAEMON = 65534, 1


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def made(folder: Path, *names: str) -> Path:
    """Return a data folder with these files."""
    for name in names:
        (folder / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / name).write_text("x")
        (folder / name).chmod(0o600)
    return folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


BELIEVED = (
    *("token", "tokens.json", "secrets.key", "store.url", "server.json", "cluster.yaml", "limits.yaml", "server.log"),
    *("standby-7.json", "store.given-7", "log/log.sqlite", "log/snapshots/00000000000000000001"),
    *("certificates/authority.pem", "certificates/server.pem", "certificates/trusted.pem"),
    *("nodes/n1/agent.json", "nodes/n1/agent.pid", "nodes/n1/journal", "nodes/n1/certificate.pem"),
)


def test_what_is_ours_is_trusted(tmp_path):
    check_data(DataFolder(made(tmp_path / "data", *BELIEVED)))
    check_data(DataFolder(tmp_path / "nothing"))


@pytest.mark.parametrize("name", [".", *BELIEVED, "log", "log/snapshots", "certificates", "nodes", "nodes/n1"])
@pytest.mark.parametrize(("bits", "who"), [(0o020, "the group "), (0o002, "everybody")])
def test_what_others_may_write_is_refused_with_what_to_do(tmp_path, name, bits, who):
    data = made(tmp_path / "data", *BELIEVED)
    path = data / name
    path.chmod(mode(path) | bits)
    with pytest.raises(NotPrivate) as refused:
        check_data(DataFolder(data))
    assert refused.value.message.startswith(f"{path} (owner ")
    assert f"can be written by {who}" in refused.value.message
    assert refused.value.hint == f"chmod go-w {path}"


def test_a_mount_that_is_vouched_for_is_passed_through_and_no_more(tmp_path, monkeypatch):
    mount = tmp_path / "mount"
    data = made(mount / "data", *BELIEVED)
    mount.chmod(0o2777)
    with pytest.raises(NotPrivate, match="everybody"):
        check_data(DataFolder(data))
    monkeypatch.setenv("PENSTOCK_TRUSTED_FOLDERS", f"/elsewhere:{mount}")
    check_data(DataFolder(data))
    (data / "token").chmod(0o602)
    with pytest.raises(NotPrivate, match="token"):
        check_data(DataFolder(data))


@root_only
@pytest.mark.parametrize("name", [".", *BELIEVED, "certificates", "nodes", "nodes/n1"])
def test_what_another_user_owns_is_refused(tmp_path, name):
    data = made(tmp_path / "data", *BELIEVED)
    os.chown(data / name, NOBODY, NOBODY)
    with pytest.raises(NotPrivate, match=r"\(owner nobody, mode 0\d+\) belongs to another user") as refused:
        check_data(DataFolder(data))
    assert refused.value.hint.endswith(f"chown root {data / name}; or work as nobody")


def as_user(uid: int, *paths: Path) -> list[str]:
    """Return what a user says of paths, '' where they trust one."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        found = (problem_of(path) for path in paths)
        os.write(writing, "\n".join(problem.message if problem else "" for problem in found).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        said = file.read().split("\n")
    os.waitpid(child, 0)
    return said


@pytest.fixture
def reachable() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-trust-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@root_only
def test_a_user_trusts_root_and_themselves_and_nobody_else(reachable):
    for name, uid in (("of-root", 0), ("own", NOBODY), ("others", DAEMON)):
        made(reachable, name)
        os.chown(reachable / name, uid, uid)
    said = as_user(NOBODY, *(reachable / name for name in ("of-root", "own", "others")))
    assert [bool(text) for text in said] == [False, False, True]
    assert (
        "others (owner daemon, mode 0600) belongs to another user, and its contents would be executed as nobody"
        in said[2]
    )


@root_only
@pytest.mark.parametrize(
    ("owner", "bits", "trusted"),
    [
        (0, 0o755, True),
        (0, 0o1777, True),
        (0, 0o777, False),
        (0, 0o775, True),  # nobody else is in the group root
        (DAEMON, 0o755, False),
        (DAEMON, 0o1777, False),
    ],
)
def test_folders_on_the_way_are_looked_at(reachable, owner, bits, trusted):
    data = made(reachable / "above" / "data", "token")
    (reachable / "above").chmod(bits)
    os.chown(reachable / "above", owner, 0)
    assert (problem_of(data / "token") is None) == trusted
    assert (problem_of(data) is None) == trusted


@root_only
def test_a_group_on_the_way_is_harmless_where_only_the_user_is_in_it(reachable):
    (reachable / "above").mkdir()
    for group, trusted in ((DAEMON, True), (NOBODY, False)):
        data = made(reachable / "above" / "data", "token")
        for path in (data / "token", data):
            os.chown(path, DAEMON, DAEMON)
        os.chown(reachable / "above", DAEMON, group)
        (reachable / "above").chmod(0o775)
        assert (as_user(DAEMON, data / "token") == [""]) == trusted


def test_an_access_list_on_the_way_is_not_taken_for_the_users_own_group(tmp_path):
    data = made(tmp_path / "above" / "data", "token")
    (tmp_path / "above").chmod(0o770)
    assert problem_of(data / "token") is None
    nobody_in_particular = 2**32 - 1
    entries = ((1, 7, nobody_in_particular), (2, 7, NOBODY), (4, 0, nobody_in_particular))
    entries += ((16, 7, nobody_in_particular), (32, 0, nobody_in_particular))
    listed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(tmp_path / "above", ACCESS_LIST, listed)
    except OSError as error:
        pytest.skip(f"no access lists here: {error.strerror}")
    problem = problem_of(data / "token")
    assert problem is not None
    assert problem.field == str(tmp_path / "above")


def test_a_link_is_followed_and_its_way_is_looked_at(tmp_path):
    data = made(tmp_path / "data", "token")
    other = made(tmp_path / "elsewhere", "keys")
    (data / "secrets.key").symlink_to(Path("..") / "elsewhere" / "keys")
    check_data(DataFolder(data))
    other.chmod(0o777)
    with pytest.raises(NotPrivate) as refused:
        check_data(DataFolder(data))
    assert refused.value.hint == f"chmod go-w {other}"
    other.chmod(0o700)
    (other / "keys").chmod(0o606)
    with pytest.raises(NotPrivate) as refused:
        check_data(DataFolder(data))
    assert refused.value.hint == f"chmod go-w {other / 'keys'}"


@root_only
def test_a_link_that_somebody_else_has_put_there_is_refused(reachable):
    data = made(reachable / "data", "token")
    reachable.chmod(0o1777)
    (reachable / "name").symlink_to("data")
    check(reachable / "name")
    os.chown(reachable / "name", NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(NotPrivate, match=r"name \(owner nobody"):
        check(reachable / "name" / "token")
    check(data)


@root_only
def test_what_cannot_be_seen_is_not_believed_and_no_fault(reachable):
    data = made(reachable / "closed" / "data", "token")
    (reachable / "closed").chmod(0o700)
    assert as_user(NOBODY, data / "token", data / "nodes" / "n1") == ["", ""]


def test_links_without_an_end_are_no_loop(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels"):
        check(tmp_path / "a")


def test_all_that_is_wrong_is_told_at_once(tmp_path):
    data = made(tmp_path / "data", "token", "server.json")
    for name in ("token", "server.json"):
        (data / name).chmod(0o666)
    with pytest.raises(NotPrivate) as refused:
        check_data(DataFolder(data))
    assert refused.value.message.endswith(", and 1 more")
    assert refused.value.hint == f"chmod go-w {data}/token; chmod go-w {data}/server.json"
    assert [problem.field for problem in refused.value.problems] == [f"{data}/token", f"{data}/server.json"]


def test_secrets_that_others_could_read_are_closed(tmp_path, caplog):
    data = made(tmp_path / "data", "token", "nodes/n1/certificate.pem")
    (data / "token").chmod(0o644)
    (data / "nodes/n1/certificate.pem").chmod(0o640)
    close_secrets(DataFolder(data))
    assert (mode(data / "token"), mode(data / "nodes/n1/certificate.pem")) == (0o600, 0o600)
    assert [record.message.split()[0] for record in caplog.records] == [
        str(data / "token"),
        str(data / "nodes/n1/certificate.pem"),
    ]
    close_secrets(DataFolder(data))
    assert len(caplog.records) == 2


# Making them.


def test_folders_are_closed_whatever_the_umask(tmp_path, open_umask):
    make_folder(tmp_path / "a" / "b" / "c")
    above = 0o711 if os.geteuid() == 0 else 0o700
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [above, above, 0o700]
    os.umask(0o077)
    make_folder(tmp_path / "d", 0o711)
    assert mode(tmp_path / "d") == 0o711


@root_only
def test_a_folder_is_not_made_where_others_could_take_it_away(reachable):
    reachable.chmod(0o777)
    with pytest.raises(NotPrivate):
        make_folder(reachable / "data")
    assert not (reachable / "data").exists()
    reachable.chmod(0o1777)
    make_folder(reachable / "data")


@root_only
def test_a_folder_that_somebody_else_has_made_before_is_refused(reachable):
    reachable.chmod(0o1777)
    (reachable / "data").mkdir(0o700)
    os.chown(reachable / "data", NOBODY, NOBODY)
    with pytest.raises(NotPrivate):
        make_folder(reachable / "data")


def test_a_file_is_written_whole_and_for_its_owner_only(tmp_path, open_umask):
    (tmp_path / "token").write_text("before")
    write_whole(tmp_path / "token", "after")
    assert ((tmp_path / "token").read_text(), mode(tmp_path / "token")) == ("after", 0o600)
    os.umask(0o077)
    write_whole(tmp_path / "trusted", b"for all", 0o644)
    assert (mode(tmp_path / "trusted"), sorted(p.name for p in tmp_path.iterdir())) == (0o644, ["token", "trusted"])


def test_a_file_that_cannot_be_put_in_its_place_leaves_nothing(tmp_path):
    (tmp_path / "token").mkdir()
    (tmp_path / "token" / "x").touch()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "token", "x")
    assert [path.name for path in tmp_path.iterdir()] == ["token"]


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "victim").write_text("whole")
    (tmp_path / "token").symlink_to("victim")
    write_whole(tmp_path / "token", "new")
    assert ((tmp_path / "victim").read_text(), (tmp_path / "token").is_symlink()) == ("whole", False)


def test_temporary_names_cannot_be_guessed(tmp_path):
    made = [new_beside(tmp_path / "token") for _ in range(2)]
    for descriptor, _ in made:
        os.close(descriptor)
    assert len({path for _, path in made}) == 2


def test_what_a_killed_process_has_left_goes_after_a_while(tmp_path):
    for age_s in (LEFT_AFTER_S + 60, 0):
        descriptor, path = new_beside(tmp_path / "token")
        os.close(descriptor)
        os.utime(path, (time.time() - age_s,) * 2)
    write_whole(tmp_path / "token", "x")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["token", path.name])


@pytest.mark.parametrize("make", [lambda p: p.symlink_to("victim"), os.mkfifo, Path.mkdir])
def test_a_log_or_lock_is_a_plain_file(tmp_path, make):
    (tmp_path / "victim").write_text("whole")
    make(tmp_path / "lock")
    with pytest.raises((NotPrivate, IsADirectoryError)):
        open_own(tmp_path / "lock", os.O_WRONLY)
    assert (tmp_path / "victim").read_text() == "whole"


def test_a_log_that_others_may_write_is_refused(tmp_path):
    os.close(open_own(tmp_path / "log", os.O_WRONLY | os.O_APPEND))
    assert mode(tmp_path / "log") == 0o600
    (tmp_path / "log").chmod(0o622)
    with pytest.raises(NotPrivate):
        open_own(tmp_path / "log", os.O_WRONLY | os.O_APPEND)
