"""The options of squeue, sinfo, sacct, scancel and scontrol, as far as they mean something here."""

from collections.abc import Sequence

from penstock.slurm.options import Option, Unknown, nearest, read_words

SPREAD = "a server has one cluster"
STEPS = "steps are not listed"
SQUEUE_OPTIONS = (
    Option("noheader", "h", "nothing"), Option("format", "o"), Option("Format", "O"), Option("user", "u"),
    Option("me", "", "nothing"), Option("jobs", "j"), Option("states", "t"), Option("partition", "p"),
    Option("account", "A"), Option("name", "n"), Option("array", "r", "nothing"), Option("long", "l", "nothing"),
    Option("nodelist", "w"), Option("start", "", "nothing"), Option("all", "a", "nothing"),
    Option("noconvert", "", "nothing"), Option("verbose", "v", "nothing"), Option("help", "", "nothing"),
    Option("sort", "S", left_out="jobs come in the server's order"),
    Option("clusters", "M", left_out=SPREAD), Option("qos", "q", left_out="priorities are no QOS"),
    Option("iterate", "i", refused="penstock ps --watch refreshes a list"),
    Option("steps", "s", "maybe", refused=STEPS), Option("json", "", "maybe", refused="penstock ps --json has its own"),
)  # fmt: skip
SACCT_OPTIONS = (
    Option("noheader", "n", "nothing"), Option("format", "o"), Option("jobs", "j"), Option("user", "u"),
    Option("allusers", "a", "nothing"), Option("allocations", "X", "nothing"), Option("parsable", "p", "nothing"),
    Option("parsable2", "P", "nothing"), Option("delimiter"), Option("accounts", "A"), Option("starttime", "S"),
    Option("endtime", "E"), Option("state", "s"), Option("name"), Option("partition", "r"),
    Option("brief", "b", "nothing"), Option("long", "l", "nothing"), Option("duplicates", "D", "nothing"),
    Option("truncate", "T", "nothing"), Option("noconvert", "", "nothing"), Option("units"),
    Option("verbose", "v", "nothing"), Option("help", "h", "nothing"), Option("array", "", "nothing"),
    Option("clusters", "M", left_out=SPREAD), Option("allclusters", "L", "nothing", SPREAD),
    Option("nodelist", "N", left_out="jobs are not selected by nodes"),
    Option("json", "", "maybe", refused="penstock ps --all --json has its own"),
)  # fmt: skip
SINFO_OPTIONS = (
    Option("noheader", "h", "nothing"), Option("format", "o"), Option("Node", "N", "nothing"),
    Option("long", "l", "nothing"), Option("partition", "p"), Option("nodes", "n"), Option("states", "t"),
    Option("summarize", "s", "nothing"), Option("exact", "e", "nothing"), Option("all", "a", "nothing"),
    Option("verbose", "v", "nothing"), Option("help", "", "nothing"),
    Option("clusters", "M", left_out=SPREAD), Option("sort", "S", left_out="rows come in the order of pools"),
    Option("Format", "O", refused="give a format of letters (-o)"),
    Option("list-reasons", "R", "nothing", refused="penstock nodes says why a node is closed"),
    Option("iterate", "i", refused="penstock nodes --watch refreshes a list"),
    Option("json", "", "maybe", refused="penstock nodes --json has its own"),
)  # fmt: skip
SCANCEL_OPTIONS = (
    Option("user", "u"), Option("me", "", "nothing"), Option("name", "n"), Option("jobname"), Option("state", "t"),
    Option("partition", "p"), Option("account", "A"), Option("signal", "s"), Option("quiet", "Q", "nothing"),
    Option("verbose", "v", "nothing"), Option("batch", "b", "nothing"), Option("full", "f", "nothing"),
    Option("interactive", "i", "nothing"), Option("help", "h", "nothing"),
    Option("clusters", "M", left_out=SPREAD), Option("qos", "q", left_out="priorities are no QOS"),
    Option("nodelist", "w", refused="jobs are not selected by nodes"),
)  # fmt: skip
SCONTROL_OPTIONS = (
    Option("oneliner", "o", "nothing"), Option("details", "d", "nothing"), Option("all", "a", "nothing"),
    Option("quiet", "Q", "nothing"), Option("verbose", "v", "nothing"), Option("help", "h", "nothing"),
    Option("clusters", "M", left_out=SPREAD),
)  # fmt: skip


class Read:
    """Options of one of these programs, and the words after them; `notes` names what is left out."""

    def __init__(self, program: str, words: Sequence[str], options: Sequence[Option]) -> None:
        given, self.words, left = [], [], list(words)
        while left:  # options may come after other words
            more, left = read_words(left, program, options)
            given += more
            if left:
                self.words.append(left.pop(0))
        self._values: dict[str, str] = {}
        self.notes: list[str] = []
        known = {one.name: one for one in options}
        for one in given:
            option = known[one.name]
            if option.refused:
                raise Unknown(f"{program}: --{one.name} is not supported: {option.refused}")
            if option.left_out:
                self.notes.append(f"{program}: --{one.name} is left out: {option.left_out}")
            self._values[one.name] = one.value

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str, default: str = "") -> str:
        return self._values.get(name, default)

    def listed(self, *names: str) -> list[str]:
        """Return the words of options that take some with commas."""
        return [word.strip() for name in names for word in self.get(name).split(",") if word.strip()]


def one_of(program: str, word: str, known: Sequence[str]) -> str:
    """Return a word that is known, shortened or not. Raises: Unknown."""
    found = [one for one in known if one == word] or [one for one in known if one.startswith(word)]
    if len(found) != 1:
        raise Unknown(f"{program}: '{word}' is not supported here{nearest(word, known, '')}: {', '.join(known)}")
    return found[0]
