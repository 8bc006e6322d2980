"""Python environments on a node: made by uv of what a job names, once for each account, and read-only; or found among
those of conda.

An environment is named by the hash of all that it is made of: the texts of requirements or of the lock, the
interpreter, the index, the machine. Programs of the account make it, so nothing of it runs as the agent; they own
it, so it is checked before each use (`kept.py`).
"""

import hashlib
import os
import platform
import re
import shutil
import time
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

import msgspec

from penstock import starts
from penstock.core.messages.orders import StartReplica
from penstock.core.model.environments import PythonSpec
from penstock.engines.agent.kept import KeptTrees, owned, size_of, unwritten
from penstock.engines.agent.preparation import Contribution, Done, NotPrepared, Preparation, Preparer
from penstock.engines.agent.programs import text_of
from penstock.engines.processes.accounts import private
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.spawn import NEVER_RAN_CODE
from penstock.privatefiles import PASSED

KEPT_S = 7 * 86_400
"""An environment that nothing has used for so long is removed."""
KEPT_GIB = 20
"""Of all environments of a node that nothing uses, where the order does not say."""
NAMES_S, NAMES_MAX = 600.0, 1_000
"""How long, and of how many jobs, the interpreter of an environment is taken for the same without a look."""
FILES_MAX = 32
"""Requirements files that name each other."""
TEXT_MAX_BYTES = 2 * 2**20
"""Of a requirements file, a project or its lock."""
WHY_MAX = 300
"""Characters of what uv says is wrong, in the reason."""
NO_UV = "this node has no uv: install uv on it, or penstock[env]"
_PASSED = re.compile(
    r"UV_.*|(?:https?|no|all)_proxy|SSL_CERT_.*|GIT_.*|NETRC|CC|CXX|C(?:XX)?FLAGS|LDFLAGS|CPATH|LIBRARY_PATH|CMAKE_.*"
    r"|CUDA_HOME|CUDA_PATH|LD_LIBRARY_PATH|TORCH_.*|MAX_JOBS|NVCC_.*|CARGO_.*|RUST.*|PKG_CONFIG_PATH",
    re.IGNORECASE,
)
"""Variables of a job that what is built may depend on: they are part of its environment's name."""
_ALSO = re.compile(r"PATH|HOME|USER|LOGNAME|LANG|LC_.*|SHELL|TMPDIR|TZ")
_OTHER_FILE = re.compile(r"(?:-r|-c|--requirements?|--constraints?)[ =\t]*(\S+)")
_OF_THE_FOLDER = re.compile(r"-e\b|--editable\b|\.|/|file:|.*@\s*(?:file:|\.|/)|--find-links\b|-f\b")
"""A requirement that is a file, whose content is not in the text."""

_MAKE = """
set -e
umask 022
here="$1" limit_kib="$2"; shift 2
"$UV" venv --quiet --no-project ${PENSTOCK_VERSION:+--python "$PENSTOCK_VERSION"} "$here"
if [ "$PENSTOCK_PROJECT" ]; then
    mkdir "$here/.project"
    cp -R "$PENSTOCK_PROJECT/." "$here/.project"
    chmod -R u+w "$here/.project"
    UV_PROJECT_ENVIRONMENT="$here" "$UV" sync --frozen --no-editable --project "$here/.project" "$@"
    rm -rf "$here/.project"
else
    "$UV" pip install --python "$here/bin/python" "$@"
fi
chmod -R a-w "$here"
if [ "$(du -sk "$UV_CACHE_DIR" | cut -f1)" -gt "$limit_kib" ]; then "$UV" cache clean --quiet; fi
"""
_CONDA = """
case "$1" in /*) [ -d "$1/conda-meta" ] && echo "$1"; exit ;; esac
base=; [ "$CONDA_EXE" ] && base="${CONDA_EXE%/*/*}"
program="$(command -v conda || command -v mamba || true)"
for root in "$base" "$MAMBA_ROOT_PREFIX" "${program%/*/*}" "$HOME/miniconda3" "$HOME/anaconda3" "$HOME/miniforge3" \\
    "$HOME/mambaforge" "$HOME/micromamba" /opt/conda /opt/miniconda3 /opt/miniforge3 /opt/anaconda3 "$HOME/.conda"; do
    [ "$root" ] || continue
    [ -d "$root/conda-meta" ] || [ -d "$root/envs" ] && any=1
    if [ "$1" = base ] && [ -d "$root/conda-meta" ]; then echo "$root"; exit; fi
    if [ -d "$root/envs/$1/conda-meta" ]; then echo "$root/envs/$1"; exit; fi
done
[ -r "$HOME/.conda/environments.txt" ] && any=1 && while read -r path; do
    if [ "${path##*/}" = "$1" ] && [ -d "$path/conda-meta" ]; then echo "$path"; exit; fi
done < "$HOME/.conda/environments.txt"
[ "$any" ] && exit 3
exit 4
"""
_ACTIVATED = """
for file in "$CONDA_PREFIX"/etc/conda/activate.d/*.sh; do [ -r "$file" ] && . "$file"; done
unset file
exec "$@"
"""


class Environments(Preparer):
    """Makes and finds Python environments for the replicas of one node."""

    def __init__(self, data: DataFolder, node: str) -> None:
        self._data, self._node = data, node
        self._base = data.environments(node)
        self._trees = KeptTrees(self._base / "made", data.node(node) / "environments.json", in_place=True)
        self._snapshots = data.unpacked(node)
        self._kept_gib = KEPT_GIB
        self._names: dict[tuple[str, str], tuple[str, float]] = {}
        """Of environments whose files lie in snapshots, which do not change: by key and account, with when."""

    def key(self, order: StartReplica) -> str:
        """Return what an environment is made of, files by their names and the folder that these are in."""
        passed = sorted((name, value) for name, value in order.env if _PASSED.fullmatch(name) or name == "PATH")
        return msgspec.json.encode([order.python, order.workdir, passed]).decode()

    def prepare(self, job: Preparation) -> Contribution:
        """Make an environment, or find the one that is there."""
        spec = job.order.python
        assert spec is not None
        self._kept_gib = job.order.environments_kept_gib or KEPT_GIB
        if spec.conda:
            return _conda(job, spec.conda)
        environment = self._environment(job)
        name = self._known_name(job, spec, environment)

        def fill(folder: Path) -> int:
            job.say("its Python environment is being made")
            self._make(job, spec, folder, environment)
            return size_of(folder, job.account)

        path, there = self._trees.get(name, job.account, job.users, fill)
        job.say("its Python environment was there already" if there else "its Python environment is made")
        env = (("VIRTUAL_ENV", str(path)), ("PYTHONNOUSERSITE", "1"))
        return Contribution(env, unwritten(job.account), (str(path / "bin"),))

    def used(self, made: Contribution, users: Sequence[str]) -> None:
        """Keep the environment for these replicas."""
        if path := dict(made.env).get("VIRTUAL_ENV"):
            self._trees.mark(Path(path), users)

    def left(self, living: Set[str]) -> None:
        """Remove environments that nothing has used for long, and those beyond their room."""
        for _ in self._trees.clean(living, kept_s=KEPT_S, kept_bytes=self._kept_gib * 2**30):
            pass

    # With uv.

    def _environment(self, job: Preparation) -> dict[str, str]:
        """Return the environment of uv and of what it builds."""
        found = {k: v for k, v in job.environment().items() if _PASSED.fullmatch(k) or _ALSO.fullmatch(k)}
        private(self._base, PASSED)
        account = job.account or "own"
        for name, folder in (("UV_CACHE_DIR", "cache"), ("UV_PYTHON_INSTALL_DIR", "pythons")):
            found[name] = str(owned(private(self._base / folder, PASSED) / account, job.account))
        fixed = {"UV_LINK_MODE": "copy", "UV_COMPILE_BYTECODE": "1", "UV_NO_PROGRESS": "1"}
        return {**found, **fixed, "UV": self._uv(job)}

    def _uv(self, job: Preparation) -> str:  # root's: copies of uv lie in the agent's folder
        """Return where uv is, for the account that runs it. Raises: NotPrepared."""
        found = starts.tool("uv")
        if found is None:
            try:
                from uv import find_uv_bin

                found = str(find_uv_bin())
            except (ImportError, FileNotFoundError):
                raise NotPrepared(NO_UV, NEVER_RAN_CODE) from None
        if not job.account:
            return found
        about = os.stat(found)  # it may lie where the account cannot go
        copy = private(self._base, PASSED) / f"uv-{about.st_size}-{about.st_mtime_ns}"
        if not copy.exists():
            new = copy.with_name(f".{copy.name}.{os.getpid()}.{id(job)}")
            shutil.copyfile(found, new)
            new.chmod(0o755)
            new.rename(copy)
        return str(copy)

    def _known_name(self, job: Preparation, spec: PythonSpec, environment: Mapping[str, str]) -> str:
        """Return the hash of all that an environment is made of, without a look where the last one is not long ago."""
        asked, now_s = (self.key(job.order), job.account), time.monotonic()
        name, at_s = self._names.get(asked, ("", 0.0))
        fixed = Path(job.order.workdir or "/").is_relative_to(self._snapshots)
        if not name or not fixed or now_s - at_s > NAMES_S:
            name = self._name(job, spec, environment)
            self._names.pop(next(iter(self._names)) if len(self._names) >= NAMES_MAX else asked, None)
            self._names[asked] = (name, now_s)
        return name

    def _name(self, job: Preparation, spec: PythonSpec, environment: Mapping[str, str]) -> str:
        """Return the hash of all that an environment is made of. Raises: NotPrepared."""
        texts = list(spec.requirements)
        if spec.file:
            texts = self._files(job, spec.file)
        elif spec.project:
            texts = [_read(job, f"{spec.project}/{name}") for name in ("pyproject.toml", "uv.lock")]
        lines = [line.strip() for text in texts for line in text.splitlines()]
        own = any(map(_OF_THE_FOLDER.match, lines)) or (spec.index and "://" not in spec.index and spec.index[0] != "/")
        if spec.project:
            own = "[build-system]" in texts[0] or any(word in texts[1] for word in ('directory = "', 'path = "'))
        words = ["python", "find", "--no-project", *([spec.version] if spec.version else [])]
        interpreter = job.run([environment["UV"], *words], env=environment, visible=False, capture=True).output
        if not spec.version and not interpreter.strip():
            raise NotPrepared("this node has no Python in the PATH: name a version, which uv gets", NEVER_RAN_CODE)
        made_of = [
            *(texts, spec.project, spec.version, spec.index, interpreter.decode(errors="replace")),
            job.order.workdir if own else "",
            sorted((name, value) for name, value in job.order.env if _PASSED.fullmatch(name)),
            (platform.machine(), *platform.libc_ver()),
        ]
        return hashlib.sha256(msgspec.json.encode(made_of)).hexdigest()

    def _files(self, job: Preparation, first: str) -> list[str]:
        """Return the texts of a requirements file and of those that it names. Raises: NotPrepared."""
        texts: dict[str, str] = {}
        waiting = [first]
        while waiting:
            path = waiting.pop()
            if path in texts or "://" in path:
                continue
            if len(texts) == FILES_MAX:
                raise NotPrepared(f"more than {FILES_MAX} requirements files name each other", NEVER_RAN_CODE)
            texts[path] = _read(job, path)
            folder = os.path.dirname(path)
            for line in texts[path].splitlines():
                if match := _OTHER_FILE.match(line.strip()):
                    waiting.append(os.path.normpath(os.path.join(folder, match[1])))
        return list(texts.values())

    def _make(self, job: Preparation, spec: PythonSpec, folder: Path, environment: Mapping[str, str]) -> None:
        """Make an environment in an empty folder. Raises: NotPrepared; Cancelled; OSError."""
        words = []
        if spec.index:
            here = os.path.join(job.order.workdir or "/", spec.index)
            words = ["--index-url", spec.index] if "://" in spec.index else ["--no-index", "--find-links", here]
        if spec.file:
            words += ["-r", spec.file]
        elif spec.requirements:
            words += ["--", *spec.requirements]
        more = {
            "PENSTOCK_VERSION": spec.version,
            "PENSTOCK_PROJECT": os.path.join(job.order.workdir or "/", spec.project) if spec.project else "",
        }
        limit_kib = str(self._kept_gib * 2**20)
        command = ["/bin/sh", "-c", _MAKE, "penstock", str(folder), limit_kib, *words]
        done = job.run(command, env={**environment, **more}, workdir=job.order.workdir or "/", capture=True)
        if not done.ok:
            raise NotPrepared(_why(done), done.ended.code or NEVER_RAN_CODE)


def _why(done: Done) -> str:
    """Return what uv says is wrong."""
    lines = [line.strip(" ×╰─▶") for line in done.output.decode(errors="replace").splitlines()]
    said = [line for line in lines if line.startswith(("error:", "cause:", "No solution", "Because"))]
    return f"uv {text_of(done.ended)}" + (": " + " ".join(said)[:WHY_MAX] if said else "")


def _read(job: Preparation, path: str) -> str:
    """Return a file of the folder that the job starts in, as its account may read it. Raises: NotPrepared."""
    words = ["/bin/sh", "-c", 'exec head -c "$1" -- "$2"', "penstock", str(TEXT_MAX_BYTES + 1), path]
    done = job.run(words, workdir=job.order.workdir or "/", visible=False, capture=True)
    if not done.ok:
        said = done.output.decode(errors="replace").strip().rpartition(": ")[2] or "it cannot be read"
        raise NotPrepared(f"{path} in {job.order.workdir or '/'}: {said}", NEVER_RAN_CODE)
    if len(done.output) > TEXT_MAX_BYTES:
        raise NotPrepared(f"{path} has more than {TEXT_MAX_BYTES // 2**20} MiB", NEVER_RAN_CODE)
    return done.output.decode(errors="replace")


def _conda(job: Preparation, name: str) -> Contribution:
    """Return what activates an environment of conda. Raises: NotPrepared."""
    done = job.run(["/bin/sh", "-c", _CONDA, "penstock", name], visible=False, capture=True)
    prefix = done.output.decode(errors="replace").strip()
    if not prefix:
        if done.ended.code == 4:
            raise NotPrepared(f"there is no conda on {job.node}, which is to have '{name}'", NEVER_RAN_CODE)
        raise NotPrepared(f"conda on {job.node} has no environment '{name}'", NEVER_RAN_CODE)
    env = (("CONDA_PREFIX", prefix), ("CONDA_DEFAULT_ENV", name))
    shell = starts.tool("bash") or "/bin/sh"
    return Contribution(env, path=(f"{prefix}/bin",), prefix=(shell, "-c", _ACTIVATED, "conda"))
