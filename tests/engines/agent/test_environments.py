"""Python environments and setup steps on a node: made once of what they are named by, used again while unchanged."""

import codecs
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from uv import find_uv_bin

from penstock import starts
from penstock.core.messages.orders import StartReplica
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.environments import PythonSpec
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.engines.agent import environments, setting_up
from penstock.engines.agent.journal import Journal
from penstock.engines.agent.kept import KeptTrees
from penstock.engines.agent.parts import Prepared
from penstock.engines.agent.preparing import Preparations
from penstock.engines.agent.programs import Programs
from penstock.engines.processes.paths import DataFolder
from tests.engines.agent.builders import sessions, start
from tests.server.harness import until
from tests.wheels import wheel

BIN = str(Path(sys.executable).parent)


def key(job: int) -> ReplicaKey:
    return ReplicaKey(JobId(job), AttemptNumber(1), Rank(0))


class Node:
    def __init__(self, root: Path) -> None:
        self.data = DataFolder(root)
        self.data.node("n1").mkdir(parents=True, exist_ok=True)
        self.number = 0
        self.begin()

    def begin(self) -> None:
        """Let a worker begin anew."""
        folder = self.data.node("n1")
        programs = Programs(folder, sessions(), Journal(folder / "journal"))
        self.parts = Preparations("n1", self.data, programs, (), threading.Event().set)

    def prepared(self, **fields: object) -> Prepared:
        self.number += 1
        env = (("PATH", f"{BIN}:/usr/bin:/bin"), *dict(fields.pop("env", {})).items())
        self.parts.start(start(key(self.number), env=env, **fields))
        return self.parts.done.get(timeout=60)

    def order(self, **fields: object) -> StartReplica:
        found = self.prepared(**fields)
        assert found.problem == "", self.output()
        return found.order

    def environment(self, spec: PythonSpec, workdir: Path, **fields: object) -> Path:
        return Path(dict(self.order(python=spec, workdir=str(workdir), **fields).env)["VIRTUAL_ENV"])

    def output(self) -> str:
        return self.data.output(key(self.number)).read_text()


def run(order: StartReplica, command: str = "") -> str:
    """Return what the program of an order, or another one in its environment, prints."""
    words = ["/bin/sh", "-c", command] if command else order.command
    done = subprocess.run(words, env=dict(order.env), cwd=order.workdir or "/", capture_output=True, check=True)
    return done.stdout.decode().strip()


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path / "data")


@pytest.fixture
def project(tmp_path) -> Path:
    """A folder with packages and requirements of them."""
    made = tmp_path / "project"
    wheel(made / "wheels", "penstock_one", "1.0")
    wheel(made / "wheels", "penstock_one", "2.0")
    (made / "requirements.txt").write_text("penstock-one<2\n")
    return made


FILE = PythonSpec(file="requirements.txt", index="wheels")


def test_an_environment_is_made_once_and_read_only(node, project):
    order = node.order(python=FILE, workdir=str(project))
    made = Path(dict(order.env)["VIRTUAL_ENV"])
    assert run(order, "penstock_one; which python") == f"penstock_one 1.0\n{made}/bin/python"
    assert {one.lstat().st_mode & 0o222 for one in made.rglob("*") if not one.is_symlink()} == {0}
    assert list(made.rglob("penstock_one.*.pyc"))
    assert node.environment(FILE, project) == made
    node.begin()
    assert node.environment(FILE, project) == made
    assert node.output() == "penstock: its Python environment was there already\n"


def test_equal_requirements_of_another_folder_are_the_same_environment(node, project, tmp_path):
    (project / "requirements.txt").write_text("# found elsewhere\npenstock-one\n")
    other = tmp_path / "other"
    shutil.copytree(project, other)
    for folder, name in ((project, "first"), (other, "second")):
        (folder / "train.py").write_text(name)
    index = project / "simple" / "penstock-one"
    index.mkdir(parents=True)
    links = "".join(f'<a href="{one.as_uri()}">{one.name}</a>' for one in (project / "wheels").iterdir())
    (index / "index.html").write_text(links)
    spec = PythonSpec(file="requirements.txt", index=f"file://{project}/simple")
    first = node.environment(spec, project)
    assert node.environment(spec, other) == first
    (other / "requirements.txt").write_text("penstock-one==1.0\n")
    assert node.environment(spec, other) != first


def test_in_a_snapshot_that_was_looked_at_nothing_has_to_run_for_the_next_start(node, project, monkeypatch):
    tree = node.data.unpacked("n1") / "own" / "tree"
    shutil.copytree(project, tree)
    first = node.environment(FILE, tree)
    ran: list[object] = []
    run_program = Programs.run
    monkeypatch.setattr(Programs, "run", lambda *words: (ran.append(words), run_program(*words))[1])
    assert (node.environment(FILE, tree), ran) == (first, [])
    assert node.environment(FILE, tree, env={"CC": "cc"}) != first
    node.environment(FILE, project)
    ran.clear()
    node.environment(FILE, project)
    assert len(ran) == 2


def test_what_two_jobs_need_at_once_is_made_once(node, project, tmp_path):
    orders = []
    for number in (1, 2):
        folder = tmp_path / f"folder{number}"
        folder.mkdir()
        (folder / "requirements.txt").write_text("penstock-one==1.0\n")
        spec = PythonSpec(file="requirements.txt", index=str(project / "wheels"))
        env = (("PATH", f"{BIN}:/usr/bin:/bin"),)
        orders.append(start(key(number), env=env, python=spec, workdir=str(folder)))
        node.parts.start(orders[-1])
    done = [node.parts.done.get(timeout=60) for _ in orders]
    assert [one.problem for one in done] == ["", ""]
    found = {dict(one.order.env)["VIRTUAL_ENV"] for one in done}
    said = "".join(node.data.output(order.key).read_text() for order in orders)
    assert (len(found), said.count("is being made"), said.count("was there already")) == (1, 1, 1)


def test_a_file_that_requirements_name_counts(node, project):
    (project / "requirements.txt").write_text("-r deep/more.txt\n")
    (project / "deep").mkdir()
    (project / "deep" / "more.txt").write_text("-r ../requirements.txt\npenstock-one==1.0\n")
    first = node.environment(FILE, project)
    (project / "deep" / "more.txt").write_text("penstock-one==2.0\n")
    order = node.order(python=FILE, workdir=str(project))
    assert dict(order.env)["VIRTUAL_ENV"] != str(first)
    assert run(order, "penstock_one") == "penstock_one 2.0"


def test_what_is_built_may_depend_on_some_variables(node, project):
    first = node.environment(FILE, project)
    assert node.environment(FILE, project, env={"LEARNING_RATE": "1"}) == first
    assert node.environment(FILE, project, env={"CUDA_HOME": "/opt/cuda"}) != first


def test_an_environment_that_was_changed_is_made_anew(node, project):
    first = node.environment(FILE, project)
    (module,) = first.glob("lib/*/site-packages/penstock_one.py")
    module.chmod(0o644)
    module.write_text("evil")
    second = node.environment(FILE, project)
    assert second != first
    assert "evil" not in next(second.glob("lib/*/site-packages/penstock_one.py")).read_text()


def test_a_version_of_python_is_part_of_it(node, project):
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    order = node.order(
        python=PythonSpec(requirements=("penstock-one",), index="wheels", version=version), workdir=str(project)
    )
    assert run(order, "python -c 'import sys; print(*sys.version_info[:2], sep=\".\")'") == version
    assert run(order, "penstock_one") == "penstock_one 2.0"


def test_a_project_is_installed_as_it_is_locked(node, project):
    (project / "src" / "mine").mkdir(parents=True)
    (project / "src" / "mine" / "__init__.py").write_text("NAME = 'mine'\n")
    (project / "pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "0.1"\nrequires-python = ">=3.9"\ndependencies = ["penstock-one<2"]\n'
    )
    words = [find_uv_bin(), "lock", "--no-index", "--find-links", "wheels", "--quiet"]
    subprocess.run(words, cwd=project, check=True, env=os.environ | {"UV_CACHE_DIR": str(project.parent / "cache")})
    about = project / "pyproject.toml"
    about.write_text(about.read_text().replace("penstock-one<2", "penstock-one>=2"))  # which the lock does not follow
    order = node.order(python=PythonSpec(project=".", index="wheels"), workdir=str(project))
    assert run(order, "penstock_one") == "penstock_one 1.0"
    assert not (Path(dict(order.env)["VIRTUAL_ENV"]) / ".project").exists()


@pytest.mark.parametrize(
    ("spec", "why", "code"),
    [
        (PythonSpec(file="nowhere.txt"), "nowhere.txt in {folder}: No such file or directory", 126),
        (PythonSpec(project="."), "./pyproject.toml in {folder}: No such file or directory", 126),
        (PythonSpec(requirements=("penstock-x",), index="wheels"), "penstock-x was not found", 1),
        (PythonSpec(requirements=("penstock one",), index="wheels"), "uv ended with exit 2: error: Failed to parse", 2),
    ],
    ids=["file", "project", "package", "text"],
)
def test_what_is_wrong_is_the_reason_and_nothing_is_left(node, project, spec, why, code):
    found = node.prepared(python=spec, workdir=str(project))
    assert why.format(folder=project) in found.problem
    assert found.exit_code == code
    assert found.problem in node.output()
    made = node.data.environments("n1") / "made" / "own"
    assert not made.exists() or list(made.iterdir()) == []


def test_a_node_without_uv_says_what_to_install(node, project, monkeypatch):
    monkeypatch.setattr(starts, "tool", lambda name: None)
    monkeypatch.setitem(sys.modules, "uv", None)
    found = node.prepared(python=FILE, workdir=str(project))
    assert found.problem == f"its Python environment is not there: {environments.NO_UV}"


def test_unused_environments_go_with_their_room(node, project, monkeypatch):
    first = node.environment(FILE, project)
    node.parts.left(key(node.number))
    monkeypatch.setattr(environments, "KEPT_S", -1)
    second = node.environment(PythonSpec(requirements=("penstock-one",), index="wheels"), project)
    node.environment(FILE, project, env={"CC": "cc"})
    until(lambda: not first.exists(), "the unused environment goes")
    assert second.exists()


@pytest.fixture
def passed():
    """A folder that other accounts can pass."""
    made = Path(tempfile.mkdtemp(prefix="penstock-test-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes environments for other accounts")
@pytest.mark.skipif(not os.access("/usr/bin/python3", os.X_OK), reason="an account needs a Python of the system")
def test_an_account_makes_its_environment_itself_and_alone_can_pass_it(passed, project, monkeypatch):
    node, nobody = Node(passed / "data"), pwd.getpwnam("nobody").pw_uid
    (passed / "root").mkdir(0o700)
    (passed / "root" / "uv").symlink_to(find_uv_bin())
    monkeypatch.setattr(starts, "tool", lambda name: str(passed / "root" / name))
    shutil.copytree(project, passed / "project")
    env = {"PATH": "/usr/bin:/bin"}
    order = node.order(python=FILE, workdir=str(passed / "project"), account="nobody", env=env)
    made = Path(dict(order.env)["VIRTUAL_ENV"])
    assert {one.lstat().st_uid for one in (made, *made.rglob("*"))} == {nobody}
    assert (made.parent.stat().st_uid, made.parent.stat().st_mode & 0o777) == (nobody, 0o500)
    assert node.data.environments("n1").stat().st_mode & 0o777 == 0o711


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another account")
def test_who_is_not_root_moves_a_tree_that_is_read_only(passed):
    def fill(folder: Path) -> int:
        (folder / "file").touch()
        folder.chmod(0o555)
        return 0

    nobody = pwd.getpwnam("nobody").pw_uid
    codecs.lookup("ascii")  # loaded from where only root may read, perhaps
    os.chown(passed, nobody, -1)
    trees = KeptTrees(passed / "trees" / "n1", passed / "notes")
    os.seteuid(nobody)
    try:
        path, _ = trees.get("a", "", (), fill)
    finally:
        os.seteuid(0)
    assert (path.stat().st_mode & 0o777, path.name.partition(".")[0]) == (0o555, "a")


def conda(home: Path) -> Path:
    made = home / "miniconda3" / "envs" / "vision"
    for folder in ("conda-meta", "bin", "etc/conda/activate.d"):
        (made / folder).mkdir(parents=True)
    (made / "bin" / "python").write_text("#!/bin/sh\necho conda $DATA $CONDA_DEFAULT_ENV\n")
    (made / "bin" / "python").chmod(0o755)
    (made / "etc/conda/activate.d/data.sh").write_text("export DATA=/data\n")
    return made


def test_an_environment_of_conda_is_activated(node, tmp_path):
    made = conda(tmp_path)
    for name in ("vision", str(made)):
        order = node.order(python=PythonSpec(conda=name), env={"HOME": str(tmp_path)}, command=("python",))
        assert run(order) == f"conda /data {name}"
        assert dict(order.env)["CONDA_PREFIX"] == str(made)


def test_a_node_without_conda_or_the_environment_says_so(node, tmp_path):
    env = {"HOME": str(tmp_path), "CONDA_EXE": "", "MAMBA_ROOT_PREFIX": ""}
    found = node.prepared(python=PythonSpec(conda="vision"), env=env)
    assert found.problem == "its Python environment is not there: there is no conda on n1, which is to have 'vision'"
    conda(tmp_path)
    found = node.prepared(python=PythonSpec(conda="visio"), env=env)
    assert found.problem == "its Python environment is not there: conda on n1 has no environment 'visio'"
    assert found.exit_code == 126


# Setup.


@pytest.fixture
def tree(node) -> Path:
    """An unpacked snapshot."""
    made = node.data.unpacked("n1") / "own" / "tree"
    made.mkdir(parents=True)
    (made / "source.txt").write_text("source")
    (made / "source.txt").chmod(0o444)
    made.chmod(0o555)
    return made


def test_steps_work_in_a_copy_of_the_snapshot_once(node, tree, tmp_path):
    steps = (f"echo made of $(cat source.txt) > made.txt; echo ran >> {tmp_path}/ran", "pwd >> made.txt")
    order = node.order(setup=steps, workdir=str(tree))
    folder = Path(order.workdir)
    assert (folder / "made.txt").read_text() == f"made of source\n{folder}\n"
    assert dict(order.env)["PENSTOCK_SETUP_DIR"] == str(folder)
    assert {one.stat().st_mode & 0o222 for one in (folder, *folder.rglob("*"))} == {0}
    assert not (tree / "made.txt").exists()
    node.begin()
    assert node.order(setup=steps, workdir=str(tree)).workdir == str(folder)
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert node.output() == "penstock: its setup was done here before\n"


@pytest.mark.parametrize("other", [{"setup": ("echo ran >> $RAN; true",)}, {"env": {"X": "2"}}, {"workdir": "/tmp"}])
def test_other_steps_variables_and_folders_are_set_up_apart(node, tmp_path, other):
    env = {"RAN": str(tmp_path / "ran")}
    fields = {"setup": ("echo ran >> $RAN",), "workdir": str(tmp_path)}
    for given in ({}, other, {}):
        node.order(**{**fields, **given, "env": env | given.get("env", {})})
    assert (tmp_path / "ran").read_text() == "ran\n" * 2


def test_elsewhere_the_steps_work_where_the_program_starts(node, tmp_path):
    order = node.order(setup=("pwd > here.txt; echo kept > $PENSTOCK_SETUP_DIR/x",), workdir=str(tmp_path))
    assert (tmp_path / "here.txt").read_text() == f"{tmp_path}\n"
    assert order.workdir == str(tmp_path)
    assert (Path(dict(order.env)["PENSTOCK_SETUP_DIR"]) / "x").read_text() == "kept\n"


@pytest.mark.parametrize(
    ("step", "why", "code"),
    [
        ("false; true", "setup step 1 of 1 ended with exit 1: false; true", 1),
        ("kill -9 $$", "setup step 1 of 1 was killed by SIGKILL: kill -9 $$", 137),
        ("# " + "x" * 200 + "\nexit 4", "setup step 1 of 1 ended with exit 4: # " + "x" * 98 + "...", 4),
    ],
    ids=["first-line", "signal", "long"],
)
def test_a_step_that_fails_leaves_nothing_and_is_run_again(node, step, why, code):
    for _ in range(2):
        found = node.prepared(setup=(step,))
        assert (found.problem, found.exit_code) == (f"its setup failed: {why}", code)
    assert list((node.data.environments("n1") / "setups" / "own").iterdir()) == []


def test_what_steps_made_is_not_used_once_it_was_changed(node, tree):
    first = Path(node.order(setup=("echo 1 > made",), workdir=str(tree)).workdir)
    (first / "made").chmod(0o644)
    (first / "made").write_text("2")
    second = Path(node.order(setup=("echo 1 > made",), workdir=str(tree)).workdir)
    assert (second / "made").read_text() == "1\n"


def test_steps_have_their_time(node):
    found = node.prepared(setup=("sleep 100",), preparing_limit_ms=100)
    assert (found.problem, found.exit_code) == ("its setup failed: it took longer than 0.1 s", 124)


def test_unused_results_go_with_their_time(node, monkeypatch):
    first = dict(node.order(setup=("true",)).env)["PENSTOCK_SETUP_DIR"]
    node.parts.left(key(node.number))
    monkeypatch.setattr(setting_up, "KEPT_S", -1)
    node.order(setup=("echo",))
    node.order(setup=(":",))
    assert not Path(first).exists()
