"""Groups of commands: without a word they print their help, and name the right word for a wrong one."""

import json

import pytest

GROUPS = ("money", "store", "token", "admin", "secret", "import", "money invoice")


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_without_a_command_prints_its_help(alone, group):
    told = alone(*group.split())
    assert (told.code, told.err, told.out) == (0, "", alone(*group.split(), "--help").out)
    assert told.out.startswith(f"Usage: penstock {group} [OPTIONS] COMMAND")


@pytest.mark.parametrize("group", GROUPS)
def test_an_unknown_command_of_a_group_has_one_text(alone, group):
    told = alone(*group.split(), "zzz")
    assert (told.code, told.out) == (2, "")
    assert told.err == f"error: there is no command 'zzz'\n  hint: penstock {group} --help lists the commands\n"


def test_the_nearest_command_of_a_group_is_named(alone):
    assert "did you mean 'revoke'?" in alone("token", "revok").err
    assert json.loads(alone("token", "revok", "--json").err)["code"] == "usage"
