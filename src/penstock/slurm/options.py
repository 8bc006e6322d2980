"""The options of sbatch, srun and salloc: their forms, and whether they mean something here.

The standard library alone: a job reads the options of its `srun` with this.
Source: man pages sbatch(1), srun(1), salloc(1) of Slurm 22.05 to 24.11.
"""

import difflib
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

Takes = Literal["value", "nothing", "maybe"]
"""Whether a value follows: as `--time=1` or `--time 1`; never; only after `=`."""


class Unknown(ValueError):
    """No such option, or one without its value; the text is a sentence for users."""


class Option(NamedTuple):
    name: str
    short: str = ""
    takes: Takes = "value"
    left_out: str = ""
    """Why it has no meaning here; empty: it has one."""
    refused: str = ""
    """Why a script that asks for it is not run; empty: it is."""


class Given(NamedTuple):
    """An option as it was given, and where: `command line`, `line 3`, `SBATCH_QOS`."""

    name: str
    value: str
    where: str


PLACES = "which nodes, cores and links are taken is decided by the pool's placement"
BINDING = "CPUs and memory are bound by the node's agent"
SITE = "a matter of how a site has set up its Slurm"
ONLY_SLURM = "only Slurm's own daemons do this"

OPTIONS: tuple[Option, ...] = (
    Option("account", "A"),
    Option("array", "a"),
    Option("chdir", "D"),
    Option("comment"),
    Option("constraint", "C"),
    Option("cpus-per-gpu"),
    Option("cpus-per-task", "c"),
    Option("dependency", "d"),
    Option("error", "e"),
    Option("export"),
    Option("gpus", "G"),
    Option("gpus-per-node"),
    Option("gpus-per-task"),
    Option("gres"),
    Option("help", "h", "nothing"),
    Option("hold", "H", "nothing"),
    Option("input", "i"),
    Option("job-name", "J"),
    Option("mail-type"),
    Option("mem"),
    Option("mem-per-cpu"),
    Option("mem-per-gpu"),
    Option("mincpus"),
    Option("nodes", "N"),
    Option("no-requeue", "", "nothing"),
    Option("ntasks", "n"),
    Option("ntasks-per-gpu"),
    Option("ntasks-per-node"),
    Option("open-mode"),
    Option("output", "o"),
    Option("parsable", "", "maybe"),
    Option("partition", "p"),
    Option("qos", "q"),
    Option("quiet", "Q", "nothing"),
    Option("requeue", "", "nothing"),
    Option("signal"),
    Option("test-only", "", "nothing"),
    Option("time", "t"),
    Option("usage", "", "nothing"),
    Option("verbose", "v", "nothing"),
    Option("version", "V", "nothing"),
    Option("wait", "W", "nothing"),
    Option("wckey"),
    Option("wrap"),
    Option("begin", refused="jobs cannot be told to start at a later time: submit it then"),
    Option("container", refused="OCI bundles are not run: start the container in the script"),
    Option("container-id", refused="OCI bundles are not run: start the container in the script"),
    Option("gid", refused="a job runs as the account of its user"),
    Option("uid", refused="a job runs as the account of its user"),
    Option("acctg-freq", left_out="use is measured at the server's own interval"),
    Option("admin-comment", left_out=ONLY_SLURM),
    Option("batch", left_out=PLACES),
    Option("bb", left_out="there are no burst buffers"),
    Option("bbf", left_out="there are no burst buffers"),
    Option("cluster-constraint", left_out="a server has one cluster"),
    Option("clusters", "M", left_out="a server has one cluster"),
    Option("contiguous", "", "nothing", PLACES),
    Option("core-spec", "S", left_out=BINDING),
    Option("cores-per-socket", left_out=BINDING),
    Option("cpu-freq", left_out=SITE),
    Option("deadline", left_out="a job is not removed by a deadline"),
    Option("delay-boot", left_out=ONLY_SLURM),
    Option("distribution", "m", left_out="tasks are dealt out in blocks"),
    Option("exclude", "x", left_out=PLACES),
    Option("exclusive", "", "maybe", "nodes are shared; it gets exactly what it asks for"),
    Option("export-file", left_out="variables come from the environment alone"),
    Option("extra", left_out=ONLY_SLURM),
    Option("extra-node-info", "B", left_out=BINDING),
    Option("get-user-env", "", "maybe", "variables come from the environment alone"),
    Option("gpu-bind", left_out="each task of --gpus-per-task gets its own, all others see all of their node"),
    Option("gpu-freq", left_out=SITE),
    Option("gpus-per-socket", left_out=PLACES),
    Option("gres-flags", left_out=PLACES),
    Option("hint", left_out=BINDING),
    Option("ignore-pbs", "", "nothing", "#PBS lines are never read"),
    Option("kill-on-invalid-dep", left_out="a job whose dependency can no longer hold is always cancelled"),
    Option("licenses", "L", left_out="licenses are not counted"),
    Option("mail-user", left_out="messages go to your destinations: penstock notify"),
    Option("mcs-label", left_out=SITE),
    Option("mem-bind", left_out=BINDING),
    Option("network", left_out=SITE),
    Option("nice", "", "maybe", "the order within a queue is its policy's"),
    Option("no-kill", "k", "maybe", "a job whose node fails starts again as a whole"),
    Option("nodefile", "F", left_out=PLACES),
    Option("nodelist", "w", left_out=PLACES),
    Option("ntasks-per-core", left_out=BINDING),
    Option("ntasks-per-socket", left_out=BINDING),
    Option("oom-kill-step", "", "maybe", BINDING),
    Option("overcommit", "O", "nothing", "CPUs are not given twice"),
    Option("oversubscribe", "s", "nothing", "nodes are shared; it gets exactly what it asks for"),
    Option("power", left_out=SITE),
    Option("prefer", left_out=PLACES),
    Option("priority", left_out="the order within a queue is its policy's: penstock edit --priority"),
    Option("profile", left_out="use is measured at the server's own interval"),
    Option("propagate", "", "maybe", "limits are those of the node's agent"),
    Option("reboot", "", "nothing", ONLY_SLURM),
    Option("reservation", left_out="reservations hold for tenants, and need no name"),
    Option("resv-ports", "", "maybe", SITE),
    Option("segment", left_out=PLACES),
    Option("sockets-per-node", left_out=PLACES),
    Option("spread-job", "", "nothing", PLACES),
    Option("stepmgr", "", "nothing", ONLY_SLURM),
    Option("switches", left_out=PLACES),
    Option("thread-spec", left_out=BINDING),
    Option("threads-per-core", left_out=BINDING),
    Option("time-min", left_out="a job gets the whole of its time limit"),
    Option("tmp", left_out="scratch space is not reserved by it"),
    Option("tres-bind", left_out=BINDING),
    Option("tres-per-task", left_out="ask by --cpus-per-task and --gpus-per-task"),
    Option("use-min-nodes", "", "nothing", PLACES),
    Option("wait-all-nodes", left_out="the script begins when all its nodes are ready"),
)
"""Of sbatch, and of salloc and srun where they are asked for an allocation."""

STEP_OPTIONS: tuple[Option, ...] = (
    Option("chdir", "D"),
    Option("cpus-per-task", "c"),
    Option("error", "e"),
    Option("export"),
    Option("exact", "", "nothing"),
    Option("gpus-per-task"),
    Option("het-group", refused="a job has one component"),
    Option("input", "i"),
    Option("job-name", "J"),
    Option("kill-on-bad-exit", "K", "maybe"),
    Option("label", "l", "nothing"),
    Option("multi-prog", "", "nothing"),
    Option("nodes", "N"),
    Option("ntasks", "n"),
    Option("ntasks-per-node"),
    Option("open-mode"),
    Option("output", "o"),
    Option("overlap", "", "nothing"),
    Option("no-kill", "k", "maybe", "a job whose node fails starts again as a whole"),
    Option("pty", "", "maybe", "tasks have no terminal: penstock shell JOB opens one"),
    Option("quiet", "Q", "nothing"),
    Option("relative", "r"),
    Option("unbuffered", "u", "nothing"),
    Option("verbose", "v", "nothing"),
    Option("wait", "W", left_out="a step ends when all its tasks have ended"),
    Option("account", "A", left_out="a step is part of its job"),
    Option("comment", left_out="a step is part of its job"),
    Option("constraint", "C", left_out="a step is part of its job"),
    Option("cpu-bind", left_out=BINDING),
    Option("gpus", "G", left_out="a step sees the devices of its job"),
    Option("gpus-per-node", left_out="a step sees the devices of its job"),
    Option("gres", left_out="a step sees the devices of its job"),
    Option("jobid", left_out="a step is part of its job"),
    Option("mem", left_out="a step has the memory of its job"),
    Option("mem-per-cpu", left_out="a step has the memory of its job"),
    Option("mem-per-gpu", left_out="a step has the memory of its job"),
    Option("mpi", left_out="tasks are started without a PMI server: mpirun in the script starts MPI programs"),
    Option("nodelist", "w", left_out="tasks are dealt out over the nodes of the job in order"),
    Option("exclude", "x", left_out="tasks are dealt out over the nodes of the job in order"),
    Option("exclusive", "", "maybe"),
    Option("partition", "p", left_out="a step is part of its job"),
    Option("qos", "q", left_out="a step is part of its job"),
    Option("time", "t", left_out="a step ends with its job"),
    *(
        one
        for one in OPTIONS
        if one.name
        in (
            *("acctg-freq", "bb", "core-spec", "cpu-freq", "distribution", "extra-node-info", "gpu-bind", "gpu-freq"),
            *("gres-flags", "hint", "mem-bind", "network", "ntasks-per-core", "ntasks-per-socket", "overcommit"),
            *("power", "profile", "propagate", "reservation", "resv-ports", "switches", "thread-spec"),
            *("threads-per-core", "tres-bind", "tres-per-task", "contiguous", "ntasks-per-gpu", "wckey", "licenses"),
        )
    ),
)
"""Of srun inside a job."""

VARIABLES: dict[str, str] = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_ARRAY_INX": "array",
    "SBATCH_CLUSTERS": "clusters",
    "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_CONTAINER": "container",
    "SBATCH_CORE_SPEC": "core-spec",
    "SBATCH_CPUS_PER_GPU": "cpus-per-gpu",
    "SBATCH_DELAY_BOOT": "delay-boot",
    "SBATCH_DISTRIBUTION": "distribution",
    "SBATCH_ERROR": "error",
    "SBATCH_EXCLUSIVE": "exclusive",
    "SBATCH_EXPORT": "export",
    "SBATCH_GPUS": "gpus",
    "SBATCH_GPUS_PER_NODE": "gpus-per-node",
    "SBATCH_GPUS_PER_TASK": "gpus-per-task",
    "SBATCH_GPU_BIND": "gpu-bind",
    "SBATCH_GPU_FREQ": "gpu-freq",
    "SBATCH_GRES": "gres",
    "SBATCH_GRES_FLAGS": "gres-flags",
    "SBATCH_HINT": "hint",
    "SBATCH_INPUT": "input",
    "SBATCH_JOB_NAME": "job-name",
    "SBATCH_MEM_BIND": "mem-bind",
    "SBATCH_MEM_PER_CPU": "mem-per-cpu",
    "SBATCH_MEM_PER_GPU": "mem-per-gpu",
    "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_NO_REQUEUE": "no-requeue",
    "SBATCH_OPEN_MODE": "open-mode",
    "SBATCH_OUTPUT": "output",
    "SBATCH_OVERCOMMIT": "overcommit",
    "SBATCH_PARTITION": "partition",
    "SBATCH_PROFILE": "profile",
    "SBATCH_QOS": "qos",
    "SBATCH_REQUEUE": "requeue",
    "SBATCH_REQ_SWITCH": "switches",
    "SBATCH_RESERVATION": "reservation",
    "SBATCH_SIGNAL": "signal",
    "SBATCH_THREADS_PER_CORE": "threads-per-core",
    "SBATCH_TIMELIMIT": "time",
    "SBATCH_WAIT": "wait",
    "SBATCH_WCKEY": "wckey",
}
"""Input variables of sbatch, and the option that each stands for."""


def read_words(
    words: Sequence[str], where: str, options: Sequence[Option] = OPTIONS, *, one_only: bool = False
) -> tuple[list[Given], list[str]]:
    """Return the options at the beginning of some words, in order, and the words from the first that is none.

    Args:
        where: where they were written, for errors.
        one_only: the words are a directive: what is no option is an error, as for sbatch.
    Raises: Unknown with a sentence that names the nearest option.
    Source: getopt_long(3): long options may be shortened while they are unambiguous.
    """
    found: list[Given] = []
    left = list(words)
    while left:
        word = left[0]
        if word == "--":
            return found, left[1:]
        if word == "-" or not word.startswith("-"):
            if one_only:
                raise Unknown(f"{where}: '{word}' is no option")
            return found, left
        del left[0]
        found += _long(word, left, where, options) if word.startswith("--") else _short(word, left, where, options)
    return found, []


def _long(word: str, left: list[str], where: str, options: Sequence[Option]) -> list[Given]:
    name, equals, value = word[2:].partition("=")
    option = _named(name, where, options)
    if option.takes == "nothing" and equals:
        raise Unknown(f"{where}: --{option.name} takes no value")
    if option.takes == "value" and not equals:
        if not left:
            raise Unknown(f"{where}: --{option.name} needs a value")
        value = left.pop(0)
    return [Given(option.name, value, where)]


def _short(word: str, left: list[str], where: str, options: Sequence[Option]) -> list[Given]:
    found = []
    letters = word[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        option = next((one for one in options if one.short == letter), None)
        if option is None:
            raise Unknown(f"{where}: there is no option -{letter}")
        value = ""
        if option.takes == "value":
            if not letters and not left:
                raise Unknown(f"{where}: -{letter} (--{option.name}) needs a value")
            value, letters = (letters, "") if letters else (left.pop(0), "")
        elif option.takes == "maybe":
            value, letters = letters, ""
        found.append(Given(option.name, value, where))
    return found


def _named(name: str, where: str, options: Sequence[Option]) -> Option:
    exact = [one for one in options if one.name == name]
    near = exact or [one for one in options if name and one.name.startswith(name)]
    if len(near) == 1:
        return near[0]
    if near:
        shown = ", ".join(f"--{one.name}" for one in near)
        raise Unknown(f"{where}: --{name} is short for several options: {shown}")
    raise Unknown(f"{where}: there is no option --{name}{nearest(name, (one.name for one in options))}")


def nearest(name: str, names: Iterable[str], before: str = "--") -> str:
    """Return a question for the name that is near to one without a meaning, or ''."""
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f"; did you mean {before}{near[0]}?" if near else ""


def option_of(name: str, options: Sequence[Option] = OPTIONS) -> Option:
    """Return an option by its whole name. Raises: KeyError."""
    for one in options:
        if one.name == name:
            return one
    raise KeyError(name)
