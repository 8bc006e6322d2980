"""Checkpoints from the command line: listed, verified, the damaged named."""

import pytest

from penstock.training import CheckpointDirectory


@pytest.fixture
def folder(tmp_path):
    directory = CheckpointDirectory(tmp_path / "checkpoints")
    directory.open()
    for step in (10, 20):
        directory.write(step, {"raw": b"x" * 5_000, "step": step})
    return directory.folder


def test_they_are_listed_newest_first(penstock, folder):
    told = penstock("checkpoints", str(folder))
    assert told.code == 0
    lines = [line.split() for line in told.out.splitlines()]
    assert [line[0] for line in lines if line and line[0].isdigit()] == ["20", "10"]
    assert "not read" in told.out


def test_verified_ones_are_whole(penstock, folder):
    found = penstock("checkpoints", str(folder), "--verify", "--json").json()["checkpoints"]
    assert [(one["step"], one["problem"], one["verified"], one["layout"]) for one in found] == [
        (20, "", True, "whole"),
        (10, "", True, "whole"),
    ]
    assert found[0]["shared_bytes"] == 5_000, "what did not change lies on the disk once"


def test_a_damaged_one_is_named_and_the_exit_code_says_so(penstock, folder):
    (folder / "step-000000020" / "tree.json").write_bytes(b"{}")
    told = penstock("checkpoints", str(folder), "--verify")
    assert told.code == 1
    assert "damaged: tree.json has" in told.out
    assert "damaged: the checkpoint of step 20" in told.err


def test_one_step_can_be_asked_for(penstock, folder):
    found = penstock("checkpoints", str(folder), "--step", "10", "--json").json()["checkpoints"]
    assert [one["step"] for one in found] == [10]
    told = penstock("checkpoints", str(folder), "--step", "11")
    assert (told.code, "no checkpoint of step 11" in told.err, "20, 10" in told.err) == (5, True, True)


@pytest.mark.parametrize("which", ["987654", "no/such/folder"])
def test_what_has_none_is_said(penstock, which):
    told = penstock("checkpoints", which)
    assert told.code == 5
    assert which in told.err


def test_looking_changes_nothing(penstock, folder):
    before = sorted(path.name for path in folder.iterdir())
    penstock("checkpoints", str(folder), "--verify")
    assert sorted(path.name for path in folder.iterdir()) == before
