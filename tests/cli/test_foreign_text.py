"""What others wrote never commands the terminal of who reads it: no escape sequences, no markup, no turned order."""

import ast
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.cli import output
from penstock.core.model import foreign
from penstock.core.model.errors import PenstockError, Problem
from penstock.traces import write_csv
from tests.cli.conftest import Terminal
from tests.cli.stage import LEAVES
from tests.server.harness import Jobs, Server, until
from tests.server.services.test_billing import past_server
from tests.sim.replay.builders import job, trace

HOSTILE = "\x1b]0;x\x07\x1b[31m\x9b2J\x7f[red]\u202egnp\u2066\u061c\ufeff\U000e0041:skull:[/]<script>=1\\\\\\"
SHOWN = r"\x1b]0;x\x07\x1b[31m\x9b2J\x7f[red]\u202egnp\u2066\u061c\ufeff\U000e0041:skull:[/]<script>=1" + "\\\\\\"
COMMANDS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f\ud800-\udfff]"
)
CHANGES = {
    *(
        "up",
        "down",
        "store backup",
        "store restore",
        "apply",
        "run",
        "submit",
        "sbatch",
        "lease",
        "shell",
        "exec",
        "drain",
        "devices close",
        "devices open",
        "wait",
        "completion install",
    ),
    *(
        "cancel",
        "hold",
        "release",
        "suspend",
        "resume",
        "requeue",
        "edit",
        "save",
        "token create",
        "token revoke",
        "node add",
        "node remove",
        "node join",
        "money reverse",
    ),
    *("money credit", "money invoice issue", "money invoice pay", "money invoice correct", "help", "wait"),
    *(
        "notify set",
        "notify test",
        "notify remove",
        "schedule pause",
        "schedule resume",
        "schedule run-now",
        "schedule remove",
        "secret set",
        "secret remove",
        "snapshots remove",
        "secret rotate",
        "admin add",
        "admin set",
        "admin remove",
    ),
}
RAW = {"logs", "attach", "mcp"}
"""Prints what a program has written, byte by byte; speaks to programs, by JSON in lines."""
VOLCANO = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": HOSTILE}, "spec": {}}


class World:
    """A server over months of a log, and jobs that are called and say what they should not."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.folder = server, folder
        jobs = Jobs(server.client)
        words = "printf '%s\\n' \"ValueError: $0\" >&2; printf '%s' \"$0\"; exit 3"
        self.failed = jobs.submit(["sh", "-c", words, HOSTILE], name=HOSTILE, queue="default")
        assert HOSTILE.rstrip("\\") in jobs.ended(self.failed).reason
        self.running = jobs.submit(["sh", "-c", "sleep 600", HOSTILE], name=HOSTILE, devices=4, workdir="/")
        jobs.state(self.running, "running")
        self.waiting = jobs.submit("true", name=HOSTILE, devices=4)
        self.after = jobs.submit("true", name=HOSTILE, after_ok=self.waiting)
        until(lambda: server.client.explain(self.waiting).code == "no_fit", "the cycle has seen it")
        server.client.drain("n1", reason=HOSTILE)
        server.client.close_device("n1", 0, reason=HOSTILE)
        credit = {"amount": "1", "reference": "[red]x\\", "kind": "grant", "note": "[/]\\"}
        server.client.add_credit("default", credit)
        server.client.create_token({"user": "ann", "note": HOSTILE})
        server.client.declare_node({"name": "away", "at": HOSTILE})
        server.client.set_secret("KEY", "x", "default")
        self.invoice = server.client.issue_invoice("vision").number
        again = {"name": HOSTILE, "command": "true", "schedule": {"cron": "@yearly"}}
        server.client.set_schedule("again", again)
        self.jobs = jobs
        (folder / "queues.yaml").write_text(json.dumps(VOLCANO))
        write_csv(replace(trace(*(job(i) for i in range(3))), name=HOSTILE, notes=(HOSTILE,)), folder / "trace.csv")
        damaged = folder / "damaged" / "step-7"
        damaged.mkdir(parents=True)
        (damaged / "manifest.json").write_text(json.dumps({HOSTILE: HOSTILE}))

    def reads(self) -> dict[str, list[tuple[str, ...]]]:
        """Return the arguments with which each command that only reads is tried."""
        ours = [(str(number),) for number in (self.failed, self.running, self.waiting, self.after)]
        return {
            "ps": [(), ("-a",), ("-a", "--tenant", HOSTILE)],
            "show": [*ours, ("99999",)],
            "explain": ours,
            "plan": [("--name", HOSTILE, "--devices", "4", "--", "true"), ("--queue", HOSTILE, "--", "true")],
            "eta": [(), ("--calibration",), ("99999",)],
            "audit": [(), (str(self.failed),)],
            "whatif": [()],
            "ui": [(), (HOSTILE,)],
            "open": [("1",)],
            "report": [("--out", "page")],
            "sim": [("trace.csv", "-P", "fifo+easy"), ("trace.csv", "-P", HOSTILE), (HOSTILE,)],
            "sizing": [("trace.csv", "--model", HOSTILE), ("trace.csv", "-P", "fifo+easy")],
            "nodes": [(), ("n1",), (HOSTILE,)],
            "devices list": [(), ("n1",), (HOSTILE,)],
            "cycle": [()],
            "status": [()],
            "top": [(), ("running",), ("nodes",), ("devices",), ("mine",), ("alerts",), (HOSTILE,), ("-f", HOSTILE)],
            "version": [()],
            "events": [(), (str(self.failed),)],
            "queue": [()],
            "alerts": [()],
            "defrag": [()],
            "pools": [()],
            "quota": [()],
            "whoami": [()],
            "certificates": [()],
            "mig": [("n1",), (HOSTILE,)],
            "store verify": [()],
            "usage": [("--by", "user,job"), ("--waste",), ("--by", HOSTILE)],
            "money bill": [(), ("--csv",), ("--month", HOSTILE)],
            "money accounts": [(), (HOSTILE,)],
            "money ledger": [()],
            "money invoice list": [()],
            "money invoice show": [(self.invoice,), (HOSTILE,)],
            "checkpoints": [("damaged",), (HOSTILE,), (str(self.failed),)],
            "token list": [()],
            "node list": [()],
            "secret list": [()],
            "notify list": [(), ("--everyone",)],
            "schedule list": [(), ("--everyone",)],
            "snapshots list": [()],
            "schedule show": [("again",), (HOSTILE,)],
            "admin show": [(), (HOSTILE,)],
            "schema": [()],
            "completion show": [("bash",)],
            "manifests": [(), ("--namespace", HOSTILE)],
            "export": [("--waiting",), ("--namespace", HOSTILE), ("--cluster", HOSTILE), (HOSTILE,), ("--json",)],
            "import kueue": [("queues.yaml",), ("queues.yaml", "--as-objects")],
            "import volcano": [("queues.yaml",), ("queues.yaml", "--as-objects")],
            "import yunikorn": [("queues.yaml",), ("queues.yaml", "--as-objects")],
            "import slurm": [("--conf", "queues.yaml")],
            "slurm": [
                *(("squeue",), ("squeue", "-o", "%i %j %k %o"), ("sinfo", "-N"), ("sinfo", "-l")),
                *(("sacct", "-a"), ("sacct", "-a", "-P", "-o", HOSTILE), ("scancel", HOSTILE)),
                *(("scontrol", "show", "job", *number) for number in ours),
                (HOSTILE,),
            ],
            "slurm-shims": [("shims",), (HOSTILE,)],
        }


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    invoices = {"issue": "manual", "prefix": "R/"}
    users = [{"name": "ann", "tenants": {"default": "member"}}]
    root = tmp_path_factory.mktemp("foreign")
    issuer = {"name": "Cluster \u202eGmbH", "address": ["Weg 1", "\u2066Berlin"], "tax_id": "DE1"}
    server, _ = past_server(
        root / "server", job_name=HOSTILE, invoices=invoices, issuer=issuer, declared_too={"users": users}
    )
    with server:
        until(lambda: server.client.accounts("vision").accounts[0].unbilled > 0, "use is posted")
        made = World(server, root)
        yield made
        for number in (made.running, made.waiting, made.after):
            server.client.cancel(number)


@pytest.fixture
def penstock(world) -> Terminal:
    return Terminal(world.folder, world.server.data.root, world.server.root)


def test_every_command_that_reads_is_tried(world):
    assert set(world.reads()) | CHANGES | RAW == set(LEAVES)


def test_no_command_says_anything_to_the_terminal(world, penstock):
    bad, silent = [], 0
    for name, variants in world.reads().items():
        for arguments in variants:
            for more in ((), ("--json",)) if name not in ("schema", "completion show") else ((),):
                told = penstock(*name.split(), *more, *arguments)
                text = told.out + told.err
                silent += not text
                if COMMANDS.search(text) or "Traceback" in text:
                    bad.append((name, arguments, more, text[:2000]))
    assert (bad, silent) == ([], 0)


@pytest.mark.parametrize(
    "command", ["ps", "show", "explain", "eta", "nodes", "money bill", "token list", "money ledger", "audit"]
)
def test_what_others_wrote_is_shown_as_it_is_with_commands_made_visible(world, penstock, command):
    arguments = {"ps": ("-a",), "show": (str(world.failed),), "audit": (str(world.failed),)}
    arguments["explain"] = (str(world.waiting),)
    told = penstock(*command.split(), *arguments.get(command, ()))
    assert told.code == 0, told.err
    wanted = {"explain": "waiting", "money ledger": "[red]x\\"}.get(command, SHOWN[:40])
    assert wanted in told.out


def test_programs_get_what_was_written_in_full(world, penstock):
    listed = penstock("ps", "-a", "--json").json()["jobs"]
    assert next(one for one in listed if one["id"] == world.failed)["name"] == HOSTILE


def test_what_is_declared_is_printed_so_that_it_can_be_read_again(world, penstock):
    told = penstock("admin", "show", "billing").out
    assert COMMANDS.search(told) is None
    assert yaml.safe_load(told)["billing"]["issuer"]["name"] == "Cluster \u202eGmbH"


def test_errors_are_told_without_commands(world, penstock):
    for more in ((), ("--json",)):
        told = penstock("submit", "--queue", HOSTILE, *more, "--", "true")
        assert (told.code, COMMANDS.search(told.err)) == (2, None)
    world.server.client.drain("n1", on=False)
    told = penstock("run", "--name", HOSTILE, "--", "sh", "-c", 'echo "ValueError: $0" >&2; exit 3', HOSTILE)
    world.server.client.drain("n1", reason=HOSTILE)
    assert (told.code, COMMANDS.search(told.err)) == (3, None)
    assert SHOWN[:40] in told.err


def test_what_a_program_wrote_is_printed_byte_by_byte_where_it_is_asked_for(world, penstock):
    assert penstock("logs", str(world.failed)).out.endswith(HOSTILE)
    assert "byte by byte" in penstock("logs", "--help").out


def test_pages_hold_what_others_wrote_as_text(world, penstock):
    assert penstock("report", "--out", "page").code == 0
    assert penstock("sim", "trace.csv", "-P", "fifo+easy", "--out", "page").code == 0
    for name in ("report.html", "sim.html"):
        page = (world.folder / "page" / name).read_text(encoding="utf-8")
        assert COMMANDS.findall(page) == []
        assert ":skull:[/]<script>" not in page
        assert ":skull:[/]&lt;script&gt;" in page


# The place where all output goes through.


def test_only_one_module_writes():
    """Whoever needs another way to write adds it there."""
    allowed = {("shell.py", "sys.stdout.flush"), ("main.py", "sys.stdout.flush"), ("progress.py", "sys.stderr.isatty")}
    allowed |= {("progress.py", "rich.console.Console")}  # of the progress bar, which shows numbers only
    allowed |= {("command.py", "sys.stdout.isatty")}  # of `top`, whose screens Textual writes
    allowed |= {
        ("completion.py", "sys.stdout.write"),
        ("completion.py", "sys.stdout.flush"),
    }  # is fast without output.py
    allowed |= {
        ("up.py", "sys.stderr.isatty"),
        ("progress.py", "sys.stdout.isatty"),
    }  # lines or a bar: nothing is written
    found = set()
    for path in sorted(Path(output.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = ast.unparse(node) if isinstance(node, ast.Attribute | ast.Name) else ""
            writes = (
                r"(typer|click)\.(echo|secho|style)|sys\.(stdout|stderr)\.\w+|print|pprint|rich\.(print|console)\.?\w*"
            )
            if path.name != "output.py" and re.fullmatch(writes, name) and name != "rich.console":
                found.add((path.name, name))
            elif isinstance(node, ast.ImportFrom) and path.name != "output.py" and node.module == "rich.console":
                found.add((path.name, "rich.console"))
    assert found == allowed


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def screen(monkeypatch) -> Screen:
    """Return what is standard output from now on: a terminal that knows colours."""
    made = Screen()
    monkeypatch.setattr(sys, "stdout", made)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "500")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return made


COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def test_at_a_terminal_only_styles_of_ours_are_commands(monkeypatch):
    from rich.tree import Tree

    seen = screen(monkeypatch)
    out = output.Console()
    tree = Tree(HOSTILE)
    tree.add(output.marked("[bold]{}[/] {}", HOSTILE, HOSTILE))
    out.print(tree)
    out.print(HOSTILE)
    out.print(output.table((HOSTILE, "b"), [(HOSTILE, output.styled("running")), (HOSTILE, output.styled(HOSTILE))]))
    text = seen.getvalue()
    assert COLOURS.findall(text)
    assert COMMANDS.findall(COLOURS.sub("", text)) == []
    assert COLOURS.sub("", text).count(SHOWN) == 7


def test_a_style_is_where_the_pattern_says_and_nowhere_else(monkeypatch):
    seen = screen(monkeypatch)
    output.Console().print(output.marked("a [bold]{}[/] {} [green]{}:[/]", "x\\", output.styled("failed"), "[red]y[/]"))
    assert seen.getvalue() == "a \x1b[1mx\\\x1b[0m \x1b[31mfailed\x1b[0m \x1b[32m[red]y[/]\x1b[0m\x1b[32m:\x1b[0m\n"


@given(st.text(), st.text())
def test_no_text_is_markup_or_breaks_the_line(first, second):
    made = output.marked("[bold]{}[/]: {} [red]end[/]", first, second).plain
    assert made == f"{foreign.one_line(first)}: {foreign.one_line(second)} end"
    assert "\n" not in made
    assert COMMANDS.search(made) is None


@given(st.text(alphabet=st.characters(), min_size=1))
def test_json_says_exactly_what_it_was_given(text):
    if any("\ud800" <= c <= "\udfff" for c in text):
        return
    encoded = foreign.in_json(json.dumps({text: [text]}, ensure_ascii=False))
    assert COMMANDS.search(encoded) is None
    assert json.loads(encoded) == {text: [text]}


def test_names_of_all_peoples_stay_as_they_are():
    names = "预训练　a é ñ שלום مرحبا 👩‍💻 می‌خواهم"
    assert foreign.one_line(names) == names


def test_a_pattern_has_a_place_for_all_that_is_given():
    with pytest.raises(ValueError, match="has no place for"):
        output.marked("{}", "a", "b")


def test_a_document_keeps_its_lines_and_commands_nothing(capsys):
    output.print_document(f"a\tb\n{HOSTILE}\n")
    assert capsys.readouterr().out == f"a\tb\n{SHOWN}\n"


def test_lines_of_others_do_not_look_like_ours(capsys):
    output.say("job 1 (x\nerror: y\t)")
    problems = [Problem("c", "f", "m\x1b\u202e", hint="h\x9b")]
    output.print_error(PenstockError("first\nsecond\x1b", hint="\x9b"), as_json=False)
    output.print_error(PenstockError("", problems=problems), as_json=False)
    said = capsys.readouterr()
    assert said.out == "job 1 (x\\nerror: y\\t)\n"
    assert said.err == "error: first\nsecond\\x1b\n  hint: \\x9b\nerror: m\\x1b\\u202e\n  hint: h\\x9b\n"


def test_two_texts_that_look_alike_are_told_apart():
    unseen = "\u00ad\u115f\u1160\u180e\u200b\u2060\u2064\u206a\u206f\u3164\ufeff\uffa0\ufff9\ufffb\U000e0041"
    shown = [foreign.one_line(f"ann{each}") for each in unseen]
    assert shown == [f"ann{ascii(each)[1:-1]}" for each in unseen]


def test_what_joins_letters_stays():
    joined = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \U0001f469\u200d\U0001f4bb"
    assert foreign.one_line(joined) == joined
