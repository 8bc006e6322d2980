"""The table of commands: their panels in the help, their places in the code, former names, and words of other tools.

Nothing is imported here: help and completion know every command by this table.
"""

from typing import NamedTuple


class Entry(NamedTuple):
    """Where a command is declared, and the line that the help shows of it."""

    place: str
    """`module:attribute`; the attribute is a function or a `typer.Typer`. Empty: a group of entries of this table."""
    summary: str
    watch: bool = False
    """Whether it takes `--watch`."""
    hidden: bool = False
    foreign: bool = False
    """Whether its words are those of another program, which it reads itself."""


PANELS: dict[str, dict[str, Entry]] = {
    "Jobs": {
        "run": Entry("run:run", "Run a command as a job and follow its output."),
        "submit": Entry("submit:submit", "Submit a job file or a command, and return at once."),
        "sbatch": Entry("sbatch:sbatch", "Submit a batch script with #SBATCH lines.", foreign=True),
        "slurm": Entry("slurm:slurm", "Run a program of Slurm's on this server.", foreign=True),
        "slurm-shims": Entry("slurm:slurm_shims", "Write sbatch, squeue and others as programs."),
        "ps": Entry("ps:ps", "List jobs.", watch=True),
        "jobs": Entry("ps:ps", "List jobs.", watch=True, hidden=True),
        "show": Entry("show:show", "Show one job with its attempts and events.", watch=True),
        "logs": Entry("logs:logs", "Print the output of a job, byte by byte."),
        "attach": Entry("attach:attach", "Follow a job's output from now on."),
        "explain": Entry("explain:explain", "Explain why a job waits.", watch=True),
        "why": Entry("explain:explain", "Explain why a job waits.", watch=True, hidden=True),
        "wait": Entry("wait:wait", "Wait until jobs have ended."),
        "cancel": Entry("actions:cancel", "Cancel jobs."),
        "hold": Entry("actions:hold", "Keep waiting jobs from starting."),
        "release": Entry("actions:release", "Let held jobs start."),
        "suspend": Entry("actions:suspend", "Stop jobs until they are resumed."),
        "resume": Entry("actions:resume", "Let suspended or held jobs start again."),
        "requeue": Entry("actions:requeue", "Stop running jobs, and put them back into their queues."),
        "edit": Entry("actions:edit", "Change the priority, queue or limits of jobs."),
        "save": Entry("actions:save", "Ask running jobs to save a checkpoint and continue."),
        "checkpoints": Entry("checkpoints:checkpoints", "List the checkpoints of a job."),
        "shell": Entry("shell:shell", "Open a shell in a lease or running job."),
        "exec": Entry("exec:exec_", "Run a command in a lease or running job."),
        "lease": Entry("lease:lease", "Hold devices for interactive work, for a limited time."),
        "notify": Entry("notify:notify", "Choose what you are notified of, and by which way."),
        "schedule": Entry("schedule:schedule", "List, pause and remove schedules; penstock submit sets them."),
        "snapshots": Entry("snapshots:snapshots", "List and remove the folders that your submits have sent."),
        "events": Entry("events:events", "List what happened, from the log."),
    },
    "Cluster": {
        "top": Entry("top.command:top", "Show queue, nodes, devices and jobs on a full screen."),
        "status": Entry("status:status", "Show the server, its nodes, jobs and alerts at a glance.", watch=True),
        "nodes": Entry("cluster:nodes", "List nodes with their devices and jobs.", watch=True),
        "devices": Entry("devices:devices", "List devices with their use; close and open single ones."),
        "pools": Entry("pools:pools", "Show capacity, allocation and device states of each pool.", watch=True),
        "queue": Entry("cluster:queue", "Show the queue tree, waiting jobs and those next to start.", watch=True),
        "quota": Entry("pools:quota", "Show use, borrowing and lending of quotas, with holders.", watch=True),
        "alerts": Entry("cluster:alerts", "List jobs that can never start, and other problems.", watch=True),
        "cycle": Entry("cycle:cycle", "Show the last scheduling cycle: its decisions and candidate plans.", watch=True),
        "node": Entry("node:node", "Add nodes on other machines, and make this machine one."),
        "drain": Entry("cluster:drain", "Close a node to new work, or open it again."),
        "defrag": Entry("cluster:defrag", "Show which jobs would move to fit a gang, and at what cost."),
        "ui": Entry("ui:ui", "Open the web pages of the server, signed in."),
        "open": Entry("ui:open_", "Open the web page of a job, signed in."),
        "report": Entry("report:report", "Write a page on everything that happened, and summary.json."),
    },
    "Look ahead": {
        "plan": Entry("plan:plan", "Show what a submit would do, without submitting."),
        "eta": Entry("eta:eta", "Estimate when waiting jobs start.", watch=True),
        "whatif": Entry("whatif:whatif", "Replay the cluster's log with other rules, quotas or nodes."),
        "sim": Entry("simulate:sim", "Compare policies on a trace of jobs."),
        "sizing": Entry("capacity:capacity", "Find how many nodes keep waiting times within a goal."),
    },
    "Money": {
        "usage": Entry("usage:usage", "Show device, CPU and memory time, and how much was used.", watch=True),
        "money": Entry("", "Accounts, bills, invoices, credit and the journal."),
    },
    "Admin": {
        "apply": Entry("admin:apply", "Apply a cluster file."),
        "admin": Entry("admin:admin", "Show and change pools, tenants, users, queues and settings."),
        "token": Entry("access:token", "Create, list and revoke tokens."),
        "secret": Entry("secrets:secret", "Set, list and remove secrets that jobs get as variables."),
        "whoami": Entry("access:whoami", "Show your user, roles and the level of your token."),
        "audit": Entry("audit:audit", "Repeat every decision from the log, and check the rules."),
        "import": Entry("import_config:import_config", "Convert another scheduler's configuration, with a report."),
        "export": Entry("export:export", "Print queues and jobs as objects of another scheduler."),
        "schema": Entry("schema:schema", "Print the JSON Schema of job or cluster files."),
    },
    "Server": {
        "up": Entry("up:up", "Start the server and the agents of this machine's nodes."),
        "down": Entry("up:down", "Stop the server and its agents."),
        "mcp": Entry("mcp:mcp", "Serve agents by the Model Context Protocol."),
        "manifests": Entry("manifests:manifests", "Print what a Kubernetes cluster needs to run the server."),
        "store": Entry("", "Back up, restore and verify the log."),
        "certificates": Entry("certificates:certificates", "Show or rotate the certificates of a data folder."),
        "mig": Entry("mig:mig", "Show how MIG would divide a node's devices, and by which commands."),
        "completion": Entry("install_completion:completion", "Make the shell complete commands, options and names."),
        "version": Entry("version:version", "Print the versions of the program and the server."),
        "help": Entry("version:help_", "Show the help of a command."),
    },
}
"""In the order of the help."""

GROUPS: dict[str, dict[str, Entry]] = {
    "money": {
        "accounts": Entry("money:account", "Show tenants' balances, credit, and budgets with forecasts.", watch=True),
        "bill": Entry("bill:bill", "Show what each tenant owes for a month, and for what."),
        "invoice": Entry("money:invoice", "Show, issue, pay and correct invoices."),
        "credit": Entry("money:credit", "Add a payment or a grant to a tenant's credit."),
        "reverse": Entry("money:reverse", "Reverse a credit or payment."),
        "ledger": Entry("money:ledger", "Show the double-entry journal."),
    },
    "store": {
        "backup": Entry("archive:backup", "Back up the log, as of now, to one archive."),
        "restore": Entry("archive:restore", "Restore the log from an archive, where there is none yet."),
        "verify": Entry("archive:verify", "Check the log: sequence, snapshot, finished jobs."),
    },
}

TABLES = frozenset({
    "ps", "jobs", "nodes", "pools", "quota", "eta", "usage", "checkpoints", "certificates",
    "money accounts", "money invoice list", "money ledger", "token list", "secret list", "notify list", "devices list",
    "node list",
    "schedule list", "snapshots list",
})  # fmt: skip
"""Commands with a table that knows its items: columns and fields have names."""
LISTS = TABLES | {"queue", "alerts", "defrag", "events", "money bill"}
"""Commands that print a list: it can be sorted, watched, and some of its columns chosen."""
WATCHED = LISTS - {"events"}
"""Lists that take `--watch`; what happens is followed instead."""
STREAMS = frozenset({"run", "logs", "export", "manifests", "schema", "money invoice show"})
"""Commands whose output is a program's own, or a document, and has no other form."""

TOP = {name: entry for panel in PANELS.values() for name, entry in panel.items()}

FORMER = {
    "account": "money accounts",
    "backup": "store backup",
    "bill": "money bill",
    "capacity": "sizing",
    "checkpoint": "save",
    "credit": "money credit",
    "invoice": "money invoice",
    "ledger": "money ledger",
    "restore": "store restore",
    "reverse": "money reverse",
    "verify": "store verify",
}
"""Former names of commands: they work, and name the new one."""

MEANINGS = {
    "config": "admin show",
    "cordon": "drain",
    "cost": "money bill",
    "delete": "cancel",
    "describe": "show",
    "disable": "drain",
    "exit": "down",
    "follow": "logs -f",
    "get": "ps",
    "history": "ps -a",
    "info": "status",
    "init": "up",
    "kill": "cancel",
    "launch": "submit",
    "limits": "quota",
    "list": "ps",
    "login": "token",
    "ls": "ps",
    "modify": "edit",
    "price": "plan",
    "priority": "edit --priority",
    "qdel": "cancel",
    "qhold": "hold",
    "qstat": "ps",
    "qsub": "submit",
    "restart": "requeue",
    "retry": "requeue",
    "rm": "cancel",
    "sacct": "ps -a",
    "sacctmgr": "admin",
    "salloc": "lease",
    "sattach": "attach",
    "scancel": "cancel",
    "scontrol": "edit",
    "serve": "up",
    "sinfo": "nodes",
    "sprio": "queue",
    "squeue": "ps",
    "sreport": "usage",
    "srun": "run",
    "sshare": "quota",
    "ssh": "shell",
    "sstat": "show",
    "start": "up",
    "stop": "cancel",
    "tail": "logs -f",
    "tenants": "admin show tenants",
    "uncordon": "drain --off",
    "update": "edit",
    "upgrade": "version",
    "users": "admin show users",
    "validate": "plan",
    "watch": "ps --watch",
}
"""Words of other tools, and what is called so here."""
