"""One grammar of output: `-o`, `--format`, `--columns` and `--sort`, with fields of the JSON and columns of tables."""

import csv
import io
import re
from contextlib import nullcontext

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli import forms, output
from penstock.cli.errors import UsageError
from penstock.cli.forms import Form, form_of
from penstock.cli.rows import Rows, sort_key
from penstock.cli.tables import Table
from penstock.core.model.quantities import format_duration, format_size


class Thing(msgspec.Struct, frozen=True):
    id: int
    name: str
    tags: list[str] = []
    inner: dict[str, int] = {}
    done: bool = False
    note: str | None = None


THINGS = [Thing(10, 'a "b"', ["x", "y"], {"n": 1}), Thing(9, "c,\x1b[2J\n", [], {}, True, "z")]


def table(of=THINGS):
    rows = [(f"{one.id}[]", one.name, "1h 5m" if one.done else "40s") for one in of]
    columns = ("thing", "name", "waited (so far)")
    return Table(columns, rows, right=("thing",), of=of, kind=Thing, key="thing", empty="no things")


def printed(capsys, form, call):
    with forms.using(form):
        call()
    return capsys.readouterr().out


def shown(capsys, what=None, **form):
    return printed(capsys, Form(**form), lambda: output.Console().print(table() if what is None else what))


def test_csv_has_a_line_for_each_item_with_all_fields(capsys):
    text = shown(capsys, output="csv")
    assert text == (
        "id,name,tags,inner,done,note\n"
        '10,"a ""b""","x,y","{""n"":1}",false,\n'
        '9,"c,\\x1b[2J\\n",,,true,z\n'
    )  # fmt: skip


def test_no_name_in_csv_is_a_formula(capsys):
    text = shown(capsys, table([Thing(-1, "=HYPERLINK(1)")]), output="csv", columns=("id", "name"))
    assert text == "id,name\n-1,'=HYPERLINK(1)\n"


def test_columns_of_csv_are_fields_or_columns(capsys):
    assert shown(capsys, output="csv", columns=("waited", "name", "inner.n"), sort="id").splitlines()[::2] == [
        "waited,name,inner.n",
        '40s,"a ""b""",1',
    ]


def test_an_empty_list_has_its_heading_and_for_people_a_sentence(capsys):
    assert shown(capsys, table([]), output="csv") == "id,name,tags,inner,done,note\n"
    assert shown(capsys, table([]), output="name") == ""
    assert shown(capsys, table([])) == "no things\n"


def test_names_are_what_one_types(capsys):
    assert shown(capsys, output="name", sort="id") == "9[]\n10[]\n"


def test_a_template_is_filled_with_fields_and_columns(capsys):
    template = r"{id:>3}\t{name:<6}|{tags.1}|{{{waited}}}"
    assert shown(capsys, template=template) == ' 10\ta "b" |y|{40s}\n  9\tc,\\x1b[2J\\n||{1h 5m}\n'


def test_a_table_has_the_columns_and_the_order_that_were_chosen(capsys):
    lines = shown(capsys, columns=("waited", "id", "THING"), sort="-waited").splitlines()
    assert [line.split() for line in (lines[0], *lines[2:])] == [
        ["waited", "(so", "far)", "id", "thing"],
        ["1h", "5m", "9", "9[]"],
        ["40s", "10", "10[]"],
    ]


def test_beside_items_for_programs_nothing_is_said(capsys):
    def call():
        output.Console().print(Table(("a",), [("other table",)]))
        output.Console().print("a line")
        output.say("totals")
        output.Console().print(table())

    assert printed(capsys, Form(output="name"), call) == "10[]\n9[]\n"


@pytest.mark.parametrize("value", [THINGS, {"things": THINGS}])
def test_a_value_for_programs_has_items_too(capsys, value):
    def call():
        output.print_json(value)

    assert printed(capsys, Form(output="name"), call) == "10\n9\n"
    assert printed(capsys, Form(columns=("name",), sort="name"), call).splitlines()[2:] == ['a "b"', r"c,\x1b[2J\n"]
    assert printed(capsys, Form(template="{done}"), call) == "false\ntrue\n"


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), st.lists, max_leaves=5))
def test_yaml_reads_as_the_same_value_and_commands_no_terminal(value):
    text = output.yaml_of({"value": value})
    assert yaml.safe_load(text) == {"value": value}
    assert output.lines(text) == text


@pytest.mark.parametrize(
    ("call", "said", "hint"),
    [
        (lambda: form_of("cvs", "", "", "", as_json=False), "expected one of wide, json", "did you mean 'csv'?"),
        (lambda: form_of("usage.csv", "", "", "", as_json=False), "-o is 'usage.csv'", "--out usage.csv"),
        (lambda: form_of("csv", "", "", "", as_json=True), "--json and -o csv contradict", ""),
        (lambda: form_of("csv", "{id}", "", "", as_json=False), "--format and -o csv contradict", ""),
        (lambda: form_of("", "", " , ", "", as_json=False), "--columns names no column", ""),
        (lambda: form_of("yaml", "", "id", "", as_json=False), "not for -o yaml", ""),
        (lambda: form_of("json", "", "", "id", as_json=False), "--sort is for tables", ""),
        (lambda: table().rows().filled("{nmae}"), "no column or field 'nmae'", "did you mean 'name'?"),
        (lambda: table().rows().filled("{"), "--format is '{'", "such as"),
        (lambda: table().rows().filled("{}"), "a brace without a name", "such as"),
        (lambda: table().rows().filled("{id:zz}"), "{id:zz}", "the width"),
        (lambda: table().arranged(("thing", "wated"), ""), "no column or field 'wated'", "did you mean 'waited'?"),
        (
            lambda: table().arranged((), "ago"),
            "--sort: there is no column or field 'ago'",
            "known: thing, name, waited",
        ),
        (lambda: Rows([{"a": 1}]).names(), "nothing here has a name", "-o json"),
    ],
)
def test_what_cannot_be_printed_is_said_with_the_nearest_right_word(call, said, hint):
    with pytest.raises(UsageError) as error:
        call()
    assert said in error.value.message
    assert hint in error.value.hint


@pytest.mark.parametrize(("form", "refused"), [(Form(output="csv"), True), (Form(), False), (Form("wide"), False)])
def test_a_command_without_items_is_refused_in_a_form_that_needs_them(form, refused):
    expected = pytest.raises(UsageError, match="no list of things") if refused else nullcontext()
    with expected, forms.using(form):
        output.say("a page")


@given(st.lists(st.integers(0, 10**12), min_size=2, max_size=9), st.sampled_from([format_duration, format_size, str]))
def test_cells_are_sorted_by_their_amount(amounts, layout):
    keys = [sort_key(layout(amount)) for amount in sorted(amounts)]
    assert keys == sorted(keys)


def test_empty_cells_are_last_in_both_orders():
    rows = Rows([{"a": "x"}, {"a": ""}, {"a": "B"}, {"a": None}])
    assert (rows.order("a"), rows.order("-a")) == ([2, 0, 1, 3], [0, 2, 1, 3])


@pytest.fixture
def job(penstock, server):
    made = penstock.job("sleep", "60")
    yield int(made)
    server.client.cancel(made)


def test_a_list_of_jobs_has_every_form(penstock, job):
    penstock.job("true")
    ours = ("ps", "--name", "sleep", "--sort", "-id", "--limit", "1")
    assert penstock(*ours, "-o", "name").out == f"{job}\n"
    assert penstock(*ours, "--format", "{id} {name}").out == f"{job} sleep\n"
    assert next(csv.DictReader(io.StringIO(penstock(*ours, "-o", "csv").out)))["id"] == str(job)
    assert yaml.safe_load(penstock("ps", "-o", "yaml").out)["totals"] == penstock("ps", "-o", "json").json()["totals"]
    last = penstock("ps", "-a", "--sort", "-job", "-o", "name").out.split()
    assert last == sorted(last, key=lambda one: -int(one.removesuffix("[]")))
    assert last != penstock("ps", "-a", "--sort", "job", "-o", "name").out.split()
    assert penstock("ps", "--columns", "pool,job").out.split()[:2] == ["pool", "job"]
    assert penstock("ps", "--columns", "user").code == 0
    told = penstock("ps", "--sort", "user", "-o", "json")
    assert (told.code, "not for -o json" in told.err) == (2, True)
    assert penstock("ps", "--columns", "user,job", "--sort", "job").out.splitlines()[0].split() == ["user", "job"]
    told = penstock("ps", "--sort", "priorty")
    assert (told.code, "did you mean 'priority'?" in told.err) == (2, True)


def test_the_next_page_is_named_apart_from_the_list(penstock, server):
    made = server.client.submit({"command": "sleep 60", "devices": 4, "replicas": 2, "array": 3}).jobs
    told = penstock("ps", "--array", str(made[0].id), "--limit", "2", "-o", "csv")
    server.client.act("cancel", {"ids": [str(one.id) for one in made]})
    assert len(told.out.splitlines()) == 3
    assert told.err.startswith("more: the same with --cursor ")


def test_what_is_wide_is_whole_at_a_narrow_terminal(penstock, job):
    narrow = " ".join(penstock.at_terminal("ps", columns=40).out.split())
    assert re.search(r"not shown: [\w, ]+ \(-o wide\)", narrow)
    assert "prio" in penstock.at_terminal("ps", "-o", "wide", columns=40).out.splitlines()[0].split()


@pytest.mark.parametrize("words", [("-o", "json"), ("--output=json",), ("--json",)])
def test_where_json_is_asked_for_an_error_is_json_too(penstock, words):
    told = penstock("show", "999999", *words)
    assert (told.code, msgspec.json.decode(told.err)["code"]) == (5, "not_found")


def test_a_thing_has_fields(penstock, job):
    assert penstock("show", str(job), "--format", "{id}: {state}").out.startswith(f"{job}: ")
    assert penstock("nodes", "n1", "-o", "name").out == "n1\n"
    assert penstock("submit", "-o", "name", "--cpus", "1", "--", "true").out.strip().isdecimal()
