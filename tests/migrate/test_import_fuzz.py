"""Whatever a file holds: an import, or an ImportFault with its place. Never another exception."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from penstock.core.config.queues import tree_problems
from penstock.migrate import Imported, kueue, slurm, volcano, yunikorn
from penstock.migrate.errors import ImportFault
from tests.migrate.helpers import SAMPLES, read_back
from tests.properties import examples

SLURM_NAMES = {
    "slurm": "slurm.conf",
    "gres": "gres.conf",
    "topology": "topology.conf",
    "dump": "lab.dump",
    "qos": "qos.txt",
    "associations": "assoc_tree.txt",
}
OTHERS = [(kueue, "kueue"), (volcano, "volcano"), (yunikorn, "yunikorn")]
BITS = ["", "\n", " ", "=", ":", "'", '"', "[", "]", "{", "}", ",", "-", "#", "\\", "|", "&a ", "*a", "<<: ", "\t", "0",
        "999999999999999999999", "n[0-999999999]", "root", "parent", "null", "!!x ", "\0", "\udcff", "é", "1e9", "-1",
        "0.0001", "%", "DEFAULT", "ALL", "---\n", "inf"]  # fmt: skip


@st.composite
def mutations(draw) -> list[tuple[int, int, str]]:
    """Return edits: where (thousandths of the text), how many characters go, what comes in their place."""
    edits = st.tuples(st.integers(0, 999), st.integers(0, 12), st.sampled_from(BITS) | st.text(max_size=4))
    return draw(st.lists(edits, min_size=1, max_size=4))


def mutated(text: str, edits: list[tuple[int, int, str]]) -> bytes:
    for at, length, bit in edits:
        start = at * len(text) // 1000
        text = text[:start] + bit + text[start + length :]
    return text.encode("utf-8", "surrogateescape")


def check(imported: Imported) -> None:
    assert tree_problems(imported.config.queues) == []
    assert read_back(imported) == imported.config
    assert all(entry.outcome in ("mapped", "approximated", "not mapped") and entry.key for entry in imported.report)


FUZZ = examples(150, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("target", SLURM_NAMES)
@given(edits=mutations())
@FUZZ
def test_mutated_files_of_slurm_are_imported_or_refused(target, edits):
    with TemporaryDirectory() as folder:
        for name in SLURM_NAMES.values():
            raw = (SAMPLES / "slurm" / name).read_text(encoding="utf-8")
            (Path(folder) / name).write_bytes(mutated(raw, edits if name == SLURM_NAMES[target] else []))
        (Path(folder) / "nodes.conf").write_bytes((SAMPLES / "slurm" / "nodes.conf").read_bytes())
        names = {key: Path(folder) / name for key, name in SLURM_NAMES.items()}
        del names["dump" if target == "associations" else "associations"]
        try:
            check(slurm.read(slurm.SlurmFiles(**names)))
        except ImportFault as fault:
            assert_placed(fault, folder)


@pytest.mark.parametrize(("module", "name"), OTHERS)
@given(which=st.integers(0, 1), edits=mutations())
@FUZZ
def test_mutated_manifests_are_imported_or_refused(module, name, which, edits):
    with TemporaryDirectory() as folder:
        paths = []
        for index, sample in enumerate(sorted((SAMPLES / name).iterdir())):
            raw = sample.read_text(encoding="utf-8")
            paths.append(Path(folder) / sample.name)
            paths[-1].write_bytes(mutated(raw, edits if index == which else []))
        try:
            check(module.read(paths))
        except ImportFault as fault:
            assert_placed(fault, folder)


def assert_placed(fault: ImportFault, folder: str) -> None:
    assert fault.file.startswith(folder)
    assert fault.line >= 0
    assert fault.expected
    assert fault.problems


@given(st.binary(max_size=200))
@FUZZ
def test_arbitrary_bytes_are_imported_or_refused(raw):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "f"
        path.write_bytes(raw)
        readers = [lambda m=m: m.read([path]) for m, _ in OTHERS]
        readers += [lambda k=key: slurm.read(slurm.SlurmFiles(**{k: path})) for key in SLURM_NAMES]
        for read in readers:
            try:
                check(read())
            except ImportFault as fault:
                assert_placed(fault, folder)
