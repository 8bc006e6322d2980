"""The program `penstock`: its commands by name, and how errors end it.

A command is imported when it is called: help, completion and every other command start without it.
"""

import sys
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup


class Entry(NamedTuple):
    """Where a command is declared, and the line that `penstock --help` shows of it."""

    place: str
    """`module:attribute`; the attribute is a function, or a `typer.Typer` with commands of its own."""
    summary: str
    hidden: bool = False


COMMANDS = {
    "up": Entry("up:up", "Start the server and the agents of this machine's nodes."),
    "down": Entry("up:down", "Stop the server and its agents."),
    "certificates": Entry("certificates:certificates", "Show or rotate the certificates of a data folder."),
    "backup": Entry("archive:backup", "Back up the log, as of now, to one archive."),
    "restore": Entry("archive:restore", "Restore the log from an archive, where there is none yet."),
    "verify": Entry("archive:verify", "Check the log: sequence, snapshot, finished jobs."),
    "apply": Entry("admin:apply", "Apply a cluster file."),
    "quota": Entry("pools:quota", "Show use, borrowing and lending of quotas, with holders."),
    "pools": Entry("pools:pools", "Show capacity, allocation and device states of each pool."),
    "whoami": Entry("access:whoami", "Show your user, roles and the level of your token."),
    "lease": Entry("lease:lease", "Hold devices for interactive work, for a limited time."),
    "shell": Entry("shell:shell", "Open a shell in a lease or running job."),
    "usage": Entry("usage:usage", "Show device, CPU and memory time, and how much was used."),
    "account": Entry("money:account", "Show tenants' balances, credit, and budgets with forecasts."),
    "credit": Entry("money:credit", "Add a payment or a grant to a tenant's credit."),
    "reverse": Entry("money:reverse", "Reverse a credit or payment."),
    "ledger": Entry("money:ledger", "Show the double-entry journal."),
    "run": Entry("run:run", "Run a command as a job and follow its output."),
    "submit": Entry("submit:submit", "Submit a job file or a command, and return at once."),
    "plan": Entry("plan:plan", "Show what a submit would do, without submitting."),
    "ps": Entry("jobs:ps", "List jobs."),
    "jobs": Entry("jobs:ps", "List jobs.", hidden=True),
    "show": Entry("jobs:show", "Show one job with its attempts and events."),
    "logs": Entry("logs:logs", "Print the output of a job, byte by byte."),
    "explain": Entry("jobs:explain", "Explain why a job waits."),
    "cancel": Entry("jobs:cancel", "Cancel jobs."),
    "checkpoint": Entry("jobs:checkpoint", "Ask a running job to save a checkpoint and continue."),
    "nodes": Entry("cluster:nodes", "List nodes with their devices and jobs."),
    "drain": Entry("cluster:drain", "Close a node to new work, or open it again."),
    "queue": Entry("cluster:queue", "Show the queue tree, waiting jobs and those next to start."),
    "alerts": Entry("cluster:alerts", "List jobs that can never start, and other problems."),
    "defrag": Entry("cluster:defrag", "Show which jobs would move to fit a gang, and at what cost."),
    "report": Entry("report:report", "Write a page on everything that happened, and summary.json."),
    "sim": Entry("simulate:sim", "Compare policies on a trace of jobs."),
    "schema": Entry("schema:schema", "Print the JSON Schema of job or cluster files."),
    "capacity": Entry("capacity:capacity", "Find how many nodes keep waiting times within a goal."),
    "whatif": Entry("whatif:whatif", "Replay the cluster's log with other rules, quotas or nodes."),
    "bill": Entry("bill:bill", "Show what each tenant owes for a month, and for what."),
    "eta": Entry("eta:eta", "Estimate when waiting jobs start."),
    "checkpoints": Entry("checkpoints:checkpoints", "List the checkpoints of a job."),
    "audit": Entry("audit:audit", "Repeat every decision from the log, and check the rules."),
    "import": Entry("import_config:import_config", "Convert another scheduler's configuration, with a report."),
    "invoice": Entry("money:invoice", "Show, issue, pay and correct invoices."),
    "token": Entry("access:token", "Create, list and revoke tokens."),
    "admin": Entry("admin:admin", "Show and change pools, tenants, users, queues and settings."),
    "secret": Entry("secrets:secret", "Set, list and remove secrets that jobs get as variables."),
}
"""In the order of the help."""


def load(name: str) -> Any:
    """Import a command and return it, as typer makes it. Raises: KeyError."""
    entry = COMMANDS[name]
    module, attribute = entry.place.split(":")
    declared = getattr(import_module(f"penstock.cli.{module}"), attribute)
    holder = typer.Typer(rich_markup_mode=None)
    if isinstance(declared, typer.Typer):
        holder.add_typer(declared, name=name, hidden=entry.hidden)
    else:
        holder.command(name, hidden=entry.hidden)(declared)
    return typer.main.get_group(holder).commands[name]


class LazyGroup(TyperGroup):
    """Knows its commands by the table, and imports one when it is to run."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, entry in COMMANDS.items():
            self.add_command(TyperCommand(name, help=entry.summary, hidden=entry.hidden))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(name) if name else command, rest


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        from penstock import __version__
        from penstock.cli.output import say

        say(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Penstock pools accelerators and lets the right ML job through at the right moment."""


def main() -> None:
    """Run the program; a known error ends it with a message and a code of its own (docs/cli.md)."""
    try:
        app()
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except Exception as error:
        from penstock.cli.output import print_error
        from penstock.core.model.errors import PenstockError

        if not isinstance(error, PenstockError):
            raise
        sys.exit(print_error(error, as_json="--json" in sys.argv))


if __name__ == "__main__":
    main()
