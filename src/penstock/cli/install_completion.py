"""`penstock completion`: makes a shell complete commands, options, numbers of jobs and names, or prints what does."""

import os
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.completion import VARIABLE
from penstock.cli.errors import UsageError
from penstock.cli.options import one_of
from penstock.cli.output import print_document, say
from penstock.core.model.errors import InvalidInput

completion = typer.Typer(help="Make the shell complete commands, options and names.")

BASH = """# bash completion of penstock; made by: penstock completion show bash
_penstock() {
    COMPREPLY=()
    local line
    while IFS= read -r line; do
        if [ "$line" = $'\\tfiles' ]; then
            compopt -o default 2>/dev/null
        else
            COMPREPLY+=("$line")
        fi
    done < <(@VARIABLE@=bash "${COMP_WORDS[0]}" "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o nosort -F _penstock penstock 2>/dev/null || complete -F _penstock penstock
"""
ZSH = """#compdef penstock
# zsh completion of penstock; made by: penstock completion show zsh
_penstock() {
    local -a found
    local line files=
    while IFS= read -r line; do
        if [[ $line == $'\\tfiles' ]]; then
            files=yes
        else
            found+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
        fi
    done < <(@VARIABLE@=zsh "${words[1]}" "${(@)words[2,$CURRENT]}" 2>/dev/null)
    (( $#found )) && _describe -V 'penstock' found
    [[ -n $files ]] && _files
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _penstock penstock
"""
FISH = """# fish completion of penstock; made by: penstock completion show fish
function __penstock
    set -l given (commandline -opc)
    set -l last (commandline -ct)
    for line in (env @VARIABLE@=fish $given[1] $given[2..-1] "$last" 2>/dev/null)
        if test "$line" = \\tfiles
            __fish_complete_path "$last"
        else
            echo $line
        end
    end
end
complete -c penstock -f -k -a '(__penstock)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
ShellArgument = Annotated[str, typer.Argument(metavar="[SHELL]", help="bash, zsh or fish; by default the one you use.")]


@completion.command("install")
def install(shell: ShellArgument = "") -> None:
    """Install completion for your shell, for new sessions. It may be repeated."""
    name = _shell(shell)
    script, start = _files(name)
    try:
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(_script(name), encoding="utf-8")
        if start is not None:
            _read_at_start(start, script)
    except OSError as error:
        raise InvalidInput(f"{error.filename} cannot be written: {error.strerror}") from error
    say(f"completion for {name} is in {script}")
    if start is not None:
        say(f"new shells read it, by a line in {start}; this one does after: . {script}")


@completion.command("show")
def show(shell: ShellArgument = "") -> None:
    """Print what completes for a shell, to be put where you want it."""
    print_document(_script(_shell(shell)))


def _files(name: str) -> tuple[Path, Path | None]:
    """Return where the script of a shell goes, and the start file that has to read it; fish looks by itself."""
    data = _folder("XDG_DATA_HOME", ".local/share")
    if name == "bash":
        return data / "bash-completion" / "completions" / "penstock", Path.home() / ".bashrc"
    if name == "zsh":
        return data / "zsh" / "site-functions" / "_penstock", _folder("ZDOTDIR", "") / ".zshrc"
    return _folder("XDG_CONFIG_HOME", ".config") / "fish" / "completions" / "penstock.fish", None


def _script(name: str) -> str:
    return SCRIPTS[name].replace("@VARIABLE@", VARIABLE)


def _folder(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / default)


def _read_at_start(start: Path, script: Path) -> None:
    """Add the line that reads the script to a shell's start file, unless it is there. Raises: OSError."""
    line = f"[ -r '{script}' ] && . '{script}'  # completion of penstock"
    known = start.read_text(encoding="utf-8", errors="surrogateescape") if start.exists() else ""
    if line in known.splitlines():
        return
    with start.open("a", encoding="utf-8") as file:
        file.write(("" if known.endswith("\n") or not known else "\n") + line + "\n")


def _shell(given: str) -> str:
    """Return the shell that is named, or the one that started this program, or the user's own. Raises: UsageError."""
    if given:
        return one_of("SHELL", given, SCRIPTS)
    for name in (_parent(), Path(os.environ.get("SHELL", "")).name):
        if name in SCRIPTS:
            return name
    raise UsageError("it is not known which shell you use", hint="name it: penstock completion install bash")


def _parent() -> str:
    """Return the name of the program that started this one, or ''."""
    try:
        return Path(f"/proc/{os.getppid()}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
