"""Commands that work on a data folder here: no address of a server elsewhere is ignored in silence."""

import pytest

ELSEWHERE = "https://prod.example:8443"
ON_A_FOLDER = [
    ("up",),
    ("down",),
    ("certificates",),
    ("mig",),
    ("store", "backup", "archive"),
    ("store", "restore", "archive"),
    ("store", "verify"),
]


@pytest.mark.parametrize("words", ON_A_FOLDER, ids=" ".join)
@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
def test_a_command_on_a_data_folder_refuses_a_server_elsewhere(alone, words, behind):
    server = ("--server", ELSEWHERE)
    told = alone(*words, *server) if behind else alone(*server, *words)
    assert (told.code, told.out) == (2, "")
    assert "works on a data folder of this machine, not on the server of --server" in told.err
    assert "hint: --data DIR, without --server" in told.err
    assert not alone.data.exists()


def test_a_server_elsewhere_is_not_ended_here(penstock):
    assert penstock("--server", ELSEWHERE, "down").code == 2
    assert penstock("status").code == 0


@pytest.mark.parametrize("words", [("ps",), ("cancel", "--all", "--yes"), ("down",)], ids=" ".join)
@pytest.mark.parametrize("option", ["--server", "--data"])
def test_an_empty_option_names_no_server(penstock, words, option):
    for line in ((option, "", *words), (*words, option, "")):
        told = penstock(*line)
        assert (told.code, told.out) == (2, "")
        assert f"{option} is empty" in told.err


@pytest.mark.parametrize("words", [("down",), ("certificates",), ("store", "verify")], ids=" ".join)
def test_the_server_of_the_environment_is_said_not_to_be_meant(alone, words):
    note = f"PENSTOCK_URL is for other commands: this one works on the data folder {alone.data}"
    assert note in alone(*words, PENSTOCK_URL=ELSEWHERE).err
    assert note not in alone(*words, PENSTOCK_URL="").err
    assert note not in alone(*words, "--data", str(alone.data), PENSTOCK_URL=ELSEWHERE).err
