"""The log elsewhere, two servers on it, and the log kept, restored and verified, from the command line."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.client import Client
from penstock.store.sqlite import SqliteStore
from tests import postgres
from tests.server.harness import Jobs, cluster_file, started_for, until

PASSWORD = "pa55word-nobody-may-see"


@pytest.fixture
def url() -> str:
    """The address of a new database, with a password that the tests' PostgreSQL does not ask for."""
    return postgres.shared().database().replace("penstock@", f"penstock:{PASSWORD}@")


def visible(text: str, root: Path) -> list[int]:
    """Return the processes started for `root` of which the system shows `text`, in words or environment."""
    found = []
    for pid in started_for(root):
        if pid != os.getpid():
            folder = Path(f"/proc/{pid}")
            try:
                shown = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            except OSError:
                continue
            if text.encode() in shown:
                found.append(pid)
    return found


def started(alone, *words: str, **variables: str) -> dict:
    file = alone.file(json.dumps(cluster_file(1)), "cluster.yaml")
    return alone("up", "--cluster", file, *words, "--json", **variables).json()


def test_the_log_lies_in_the_database_that_is_named_and_is_found_again(alone, url):
    started(alone, "--store", url)
    job = alone.job("true")
    assert alone("down").code == 0
    kept = alone.data / "store.url"
    assert (kept.read_text(), kept.stat().st_mode & 0o777) == (url + "\n", 0o600)
    assert not (alone.data / "log").exists()
    assert alone("up").code == 0
    until(lambda: alone("show", str(job), "--json").json()["job"]["state"] == "succeeded", "it goes on")
    assert alone("down").code == 0


def test_the_address_may_come_from_the_environment_and_is_passed_on_to_nobody(alone, url):
    started(alone, PENSTOCK_STORE=url)
    alone.job("sleep", "60")
    until(lambda: len(started_for(alone.folder)) >= 4, "server, agent and program run")
    assert visible(PASSWORD, alone.folder) == []
    assert PASSWORD not in (alone.data / "server.log").read_text()
    assert alone("down").code == 0


def test_an_address_on_the_command_line_is_blotted_out(alone, url):
    process = alone.begin("up", "--store", url.replace("host=", "host=/nowhere"), "--json")
    until(lambda: process.poll() is not None or PASSWORD not in command_line(process.pid), "it is blotted out")
    _, told = process.communicate(timeout=60)
    assert process.returncode == 6
    assert "the database cannot be reached" in told
    assert PASSWORD not in told
    assert [p for p in alone.data.rglob("*") if p.is_file() and PASSWORD in p.read_text(errors="replace")] == []


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def test_only_the_secret_is_blotted_out():
    code = (
        "import sys; from pathlib import Path; from penstock.cli.secrets import hide; hide(sys.argv[2]); hide('x'); "
        "print(Path('/proc/self/cmdline').read_text().split(chr(0))[-4:-1], sys.argv[2])"
    )
    words = [sys.executable, "-c", code, "before", "postgresql://u:pw@h/d", "after"]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert told == f"['before', '{'x' * 21}', 'after'] postgresql://u:pw@h/d\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--store", "mysql://u:secret@h/d"), "--store is no address of a store"),
        (("--store", "postgresql://u:secret%ZZ@h/d"), "the address of the store cannot be read"),
        (("--standby",), "--standby needs a database that both servers use"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(alone, words, said):
    told = alone("up", *words)
    assert (told.code, said in told.err, "secret" in told.err) == (2, True, False)
    assert not alone.data.exists()


def test_a_folder_with_a_log_of_its_own_does_not_begin_anew_elsewhere(alone, url):
    started(alone)
    alone("down")
    told = alone("up", "--store", url)
    assert told.code == 2
    assert f"the log of this data folder is in {alone.data / 'log'}, and there is none in postgresql://" in told.err
    assert "penstock store backup FILE" in told.err
    assert "--switch-store leaves it behind" in told.err
    assert PASSWORD not in told.err
    assert not (alone.data / "store.url").exists()


@pytest.mark.parametrize("stale", [False, True])
def test_a_folder_whose_log_is_in_a_database_is_not_started_on_a_file(alone, url, stale):
    if stale:  # the file from before the log was brought to the database
        started(alone)
        alone("down")
        alone("store", "backup", "b.zip")
        alone("store", "restore", "b.zip", "--store", url)
    started(alone, "--store", url)
    assert alone.job("true") == 1
    alone("down")
    told = alone("up", "--store", "sqlite")
    assert told.code == 2
    why = f"{alone.data / 'log'} has only " if stale else f"there is none in {alone.data / 'log'}"
    assert "the log of this data folder is in postgresql://" in told.err
    assert why in told.err
    assert (alone.data / "store.url").read_text() == url + "\n"
    assert (alone.data / "log").exists() == stale
    assert alone("up").code == 0
    assert alone.job("true") == 2
    alone("down")


def test_a_log_is_left_behind_only_on_request_and_its_address_is_kept(alone, url):
    started(alone, "--store", url)
    assert alone.job("true") == 1
    alone("down")
    assert alone("up", "--switch-store").code == 2
    assert alone("up", "--store", "sqlite", "--switch-store").code == 0
    assert alone.job("true") == 1
    kept = alone.data / "store.url.former"
    assert (kept.read_text(), kept.stat().st_mode & 0o777) == (url + "\n", 0o600)
    assert not (alone.data / "store.url").exists()
    alone("down")
    assert alone("up").code == 0
    alone("down")


def test_a_folder_does_not_leave_a_database_that_is_away(alone, url):
    started(alone, "--store", url)
    alone("down")
    (alone.data / "store.url").write_text(url.replace("host=", "host=/nowhere") + "\n")
    told = alone("up", "--store", "sqlite")
    assert (told.code, "cannot be compared with it: the database cannot be reached" in told.err) == (2, True)


def test_the_same_database_with_another_password_is_no_other_log(alone, url):
    started(alone, "--store", url)
    alone("down")
    other = url.replace(PASSWORD, "changed")
    assert alone("up", "--store", other).code == 0
    assert (alone.data / "store.url").read_text() == other + "\n"
    alone("down")


def test_a_second_server_waits_beside_the_first_and_takes_over(alone, url):
    first = started(alone, "--store", url)
    again = alone("up")
    assert (again.code, "--standby starts a standby" in again.err) == (7, True)
    second = alone("up", "--standby", "--json").json()
    assert (second["role"], second["url"] != first["url"]) == ("standby", True)
    leader = json.loads((alone.data / "server.json").read_bytes())["pid"]
    os.kill(leader, 9)
    until(lambda: json.loads((alone.data / "server.json").read_bytes())["pid"] != leader, "the other leads")
    assert alone.job("true") == 1
    third = alone("up", "--standby")
    assert third.out.startswith("Penstock waits at http://127.0.0.1:")
    told = alone("down")
    assert told.out == "ended the server, 1 standby and 1 agent\n"
    until(lambda: [p for p in started_for(alone.folder) if p != os.getpid()] == [], "all processes are gone", 10)
    assert list(alone.data.glob("standby-*")) == []


def test_what_a_killed_standby_left_is_no_server(alone, url):
    started(alone, "--store", url)
    alone("up", "--standby")
    (left,) = alone.data.glob("standby-*.json")
    os.kill(int(left.stem.partition("-")[2]), 9)
    time.sleep(0.1)
    assert alone("down").out == "ended the server and 1 agent\n"
    assert not left.exists()


def test_a_running_cluster_is_kept_restored_into_a_database_and_goes_on_there(alone, url):
    started(alone)
    client = Client.of(alone.data)
    jobs = Jobs(client)
    first = jobs.submit("exit 3")
    jobs.ended(first)
    told = alone("store", "backup", "cluster.zip").out
    assert told.startswith("kept ")
    assert told.endswith(f"records and 1 finished job: {alone.data / 'log'}, cluster.zip\n")
    assert alone("store", "verify").code == 0
    client.close()
    alone("down")
    assert alone("store", "backup", "later.zip", "--json").json()["manifest"]["members"]["finished.rows"]["rows"] == 1
    assert alone("store", "restore", "later.zip", "--store", url).code == 0
    assert alone("store", "verify", "--store", url, "--json").json()["verdict"]["problem"] == ""
    assert alone("up", "--store", url).code == 0
    assert alone("show", str(first), "--json").json()["job"]["exit_code"] == 3
    assert alone.job("true") == first + 1
    alone("down")


def test_a_restore_into_a_log_is_refused(alone):
    started(alone)
    alone("store", "backup", "b.zip")
    told = alone("store", "restore", "b.zip")
    assert (told.code, "is not empty" in told.err) == (1, True)
    assert alone("store", "backup", "b.zip").code == 1
    alone("down")


def test_verify_ends_with_1_and_says_the_first_difference(alone):
    store = SqliteStore(alone.data / "log")
    from tests.store.builders import records

    store.append(records(1, 3), [], store.acquire_epoch())
    print(alone("store", "verify").err)
    assert alone("store", "verify").out.endswith(
        "log: 3 records without a gap, 0 finished and 3 live jobs, no snapshot: all as the log tells\n"
    )
    store._writer.execute("DELETE FROM events WHERE seq = 2")
    store.close()
    told = alone("store", "verify")
    assert (told.code, told.err) == (1, f"{alone.data / 'log'}: record 2 is missing: 3 comes there\n")
    assert alone("store", "verify", "--json").code == 1


def test_verifying_what_is_not_there_is_an_error(alone):
    told = alone("store", "verify")
    assert (told.code, told.err.startswith("error: there is no log in ")) == (2, True)
    assert not alone.data.exists()
