"""What an account puts where root is about to look leads root nowhere, and keeps it waiting for nothing."""

import errno
import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.engines.processes import account_files


@contextmanager
def lease(path: Path) -> Iterator[None]:
    """Let another process hold a lease on a file, which it does not give up: an open would wait for 45 s."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        held = os.open(path, os.O_RDWR)
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        os.write(write_end, b".")
        signal.pause()
    os.read(read_end, 1)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read_end)
        os.close(write_end)


@pytest.fixture
def home(tmp_path) -> Path:
    """A folder with one of each that an account can make."""
    made = tmp_path / "home"
    (made / "folder").mkdir(parents=True)
    (made / "folder" / "file").write_text("inside")
    (tmp_path / "secret").write_text("secret")
    (made / "file").write_text("own")
    (made / "link").symlink_to(tmp_path / "secret")
    (made / "linked").symlink_to(made / "folder")
    os.mkfifo(made / "pipe")
    os.link(made / "file", made / "second")
    return made


@pytest.mark.parametrize("path", ["link", "linked/file", "pipe", "second", "folder", "../secret", "/etc/passwd", ""])
def test_nothing_but_a_plain_file_with_one_name_is_opened_in_a_folder(home, path):
    with account_files.folder(home) as opened, pytest.raises(OSError, match=r"."):
        account_files.plain_file(path, within=opened)


def test_a_plain_file_is_read(home):
    with account_files.folder(home) as opened:
        descriptor = account_files.plain_file("folder/file", within=opened)
        assert os.read(descriptor, 9) == b"inside"
        os.close(descriptor)


def test_a_lease_is_not_waited_for(home):
    path = home / "folder" / "file"
    with lease(path):
        with pytest.raises(BlockingIOError):
            account_files.plain_file(path)
        os.close(account_files.kept_file(path, os.O_WRONLY))  # a new file takes its place
    assert path.read_text() == ""


@pytest.mark.parametrize("name", ["link", "pipe", "second"])
def test_what_is_no_plain_file_gives_way_to_one(home, name):
    os.close(account_files.kept_file(home / name, os.O_WRONLY))
    assert (home / name).read_text() == ""
    assert (home.parent / "secret").read_text() == "secret"
    assert (home / "file").read_text() == "own"


def test_a_folder_that_was_exchanged_for_a_link_is_not_made_ones_own(tmp_path):
    (tmp_path / "victim").mkdir(mode=0o755)
    (tmp_path / "folder").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match=r"."):
        account_files.make_folder(tmp_path / "folder")
    assert (tmp_path / "victim").stat().st_mode & 0o777 == 0o755


def test_all_entries_are_walked_in_order_and_links_are_not_followed(home):
    with account_files.folder(home) as opened:
        paths = [path for path, _ in account_files.walk(opened)]
    assert paths == ["", "file", "folder", "folder/file", "link", "linked", "pipe", "second"]


def test_a_walk_has_a_bound(home, monkeypatch):
    with account_files.folder(home) as opened:
        with pytest.raises(account_files.TooLarge):
            list(account_files.walk(opened, most=6))
        monkeypatch.setattr(account_files, "DEPTH_MAX", 0)
        with pytest.raises(account_files.TooLarge):
            list(account_files.walk(opened))


def test_a_tree_goes_whatever_is_in_it(home):
    deep = home
    for _ in range(3 * account_files.DEPTH_MAX):
        deep = deep / "d"
        deep.mkdir()
    (home / "folder").chmod(0)
    with account_files.folder(home.parent) as above:
        assert account_files.remove("home", above)
        assert account_files.remove("home", above)
    assert sorted(path.name for path in home.parent.iterdir()) == ["secret"]


@pytest.mark.parametrize("name", ["pipe", "link", "file"])
def test_one_entry_goes_and_not_what_it_leads_to(home, name):
    with account_files.folder(home) as opened:
        assert account_files.remove(name, opened)
    assert not (home / name).is_symlink()
    assert not (home / name).exists()
    assert (home.parent / "secret").read_text() == "secret"


def test_a_removal_that_takes_too_long_is_given_up(home):
    times = iter([0.0, 0.0, *[account_files.REMOVE_MAX_S + 1] * 99])
    with account_files.folder(home.parent) as above:
        assert not account_files.remove("home", above, clock=lambda: next(times))
    assert home.exists()


def test_nothing_that_is_there_is_written_over(home):
    with account_files.folder(home) as opened:
        for name in ("link", "pipe", "file"):
            with pytest.raises(FileExistsError):
                account_files.write_new(name, b"x", opened)
        account_files.write_new("new", b"x", opened)
    assert (home / "new").read_bytes() == b"x"


def test_names_that_an_account_made_without_number_are_not_all_listed(home):
    with account_files.folder(home) as opened:
        assert len(account_files.first_names(opened, 3)) == 3
        assert len(account_files.first_names(opened, 99)) == 6


def test_the_error_says_what_is_wrong(home):
    with account_files.folder(home) as opened, pytest.raises(OSError, match="not a plain file") as caught:
        account_files.plain_file("link", within=opened)
    assert caught.value.errno == errno.ELOOP
