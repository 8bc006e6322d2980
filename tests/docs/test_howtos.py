"""How-tos, played word by word: what a reader types works, in its order. What needs another scheduler is not played."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec
import pytest
import yaml

from penstock.core.config.job import parse_request
from tests.cli.transcript import Shell, commands, shell
from tests.server.harness import ROOT, environment, sweep

LAB = (ROOT / "docs" / "lab-machine.md").read_text(encoding="utf-8")
ELASTIC = (ROOT / "docs" / "elastic-training.md").read_text(encoding="utf-8")
OPERATE = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
SEEN_AT_LAB = {
    "penstock up": ("Penstock is up", "nodes?.* 8 devices"),
    "penstock nodes": ("lab.*ready", "8 x A100"),
    "penstock token create": ("pst_",),
    "penstock whoami": (r"\bann\b", "vision", "member"),
    "penstock plan": ("now",),
    "penstock submit": ("job 1",),
    "penstock ps": (r"\btrain\b",),
    "penstock explain": ("job 1",),
    "penstock status": ("1 nodes?|1 of 1",),
    "penstock quota": ("vision", "speech"),
    "penstock usage": ("vision.*ann",),
    "penstock drain lab --reason": ("lab",),
    "penstock drain lab --off": ("lab",),
}
"""By the beginning of a command: patterns of what is seen."""


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Shell]:
    with shell(tmp_path, environment(tmp_path)) as opened:
        opened.play(f"export PENSTOCK_HOME={tmp_path}/data")
        yield opened
    sweep(tmp_path)


def play(terminal: Shell, command: str, expected: Mapping[str, tuple[str, ...]] = MappingProxyType({})) -> str:
    seen = terminal.play(command)
    shown = f"{command}\n" + "\n".join(seen.lines)
    assert seen.code == 0, shown
    for wrong in ("Traceback", "error:", "warning:"):
        assert wrong not in shown
    patterns = next((found for known, found in expected.items() if command.startswith(known)), ())
    assert [pattern for pattern in patterns if not re.search(pattern, seen.text)] == [], shown
    return seen.text


def test_a_lab_machine_is_shared_as_its_page_says(terminal, tmp_path):
    (declared,) = re.findall(r"`lab.yaml`:\n\n```yaml\n(.*?)```", LAB, re.DOTALL)
    if os.geteuid() == 0:  # the page says what root has to add
        declared += "settings: {job_account: root}\n"
    (tmp_path / "lab.yaml").write_text(declared, encoding="utf-8")
    (tmp_path / "train.py").write_text("import time; time.sleep(300)\n", encoding="utf-8")
    token = url = ""
    for command in commands(LAB):
        command = command.replace("--port 7070", "--port 0").replace("http://127.0.0.1:7070", url)
        said = play(terminal, command.replace("pst_...", token), SEEN_AT_LAB)
        token = token or "".join(re.findall(r"pst_[\w-]+", said))
        url = url or "".join(re.findall(r"http://127\.0\.0\.1:\d+", said)[:1])
        if command.startswith("penstock explain"):
            terminal.play("unset PENSTOCK_URL PENSTOCK_TOKEN")
    play(terminal, "penstock down")


def test_a_server_is_kept_as_the_page_says(terminal, tmp_path):
    left_out = ("pip ", "scp ", "penstock up --standby", "penstock up --listen-agents")
    shown = [c for c in commands(OPERATE) if not c.startswith(left_out)]
    for folder in ("backups", "examples"):
        (tmp_path / folder).mkdir()
    (tmp_path / "cluster.yaml").write_text((ROOT / "examples" / "cluster.yaml").read_text(), encoding="utf-8")
    play(terminal, "penstock up --cluster cluster.yaml")
    for command in shown:
        command = command.replace(
            "node join gpu-7.join", f"node join gpu-7.join --data {tmp_path}/gpu-7 --ports 22000-22009"
        )
        confirmed = " --yes" if command.startswith("penstock admin set") else ""
        play(terminal, command.replace("/backups/", "backups/") + confirmed)
    for mention in re.findall(r"`(penstock store[^`]*)`", OPERATE.partition("**Backup")[0]):
        play(terminal, mention.replace("/backups/", "backups/").replace("/tmp/proof", "proof"))
    play(terminal, "penstock down")


SEEN_AT_ELASTIC = {
    "penstock up": ("Penstock is up", "4 devices"),
    "penstock submit": ("job 1",),
    "penstock logs": ("starting at row 0 with", "final loss: 0"),
    "penstock show": ("succeeded",),
    "penstock explain": ("job 1",),
}


def test_a_training_grows_as_its_page_says(terminal, tmp_path):
    pytest.importorskip("torch")
    blocks = re.findall(r"`([\w/]+.yaml)`:\n\n```yaml\n(.*?)```", ELASTIC, re.DOTALL)
    (name, declared), (shown, said) = blocks
    (tmp_path / name).write_text(declared, encoding="utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert yaml.safe_load(said).items() <= yaml.safe_load((ROOT / shown).read_text(encoding="utf-8")).items()
    for command in commands(ELASTIC):
        play(terminal, command, SEEN_AT_ELASTIC)


@pytest.mark.parametrize("page", ["from-slurm", "from-skypilot"])
def test_a_job_file_of_a_page_is_one(page):
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    written = text.rpartition("becomes\n\n```yaml\n")[2].partition("```")[0]
    entries, problems = parse_request(msgspec.to_builtins(yaml.safe_load(written)))
    assert (len(entries), problems) == (1, [])
