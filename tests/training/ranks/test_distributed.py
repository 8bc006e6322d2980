"""Sharded states: saved by four ranks, resumed by two and three, damaged by one bit, read without this library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import training
from penstock.training import BadArgument, CheckpointDirectory, DamagedCheckpoint, PartsMissing, UnsavableValue
from penstock.training.storage import hostmemory
from tests.training.needs import need_later

torch = need_later("torch")
dcp = need_later("torch.distributed.checkpoint")
ours = need_later("penstock.training.distributed")
group = need_later("penstock.training.ranks.group")

Results = dict[str, list[dict[str, Any]]]
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run all scenarios once; return the folder with the checkpoints of steps 3 and 6."""
    folder = tmp_path_factory.mktemp("sharded") / "checkpoints"
    folder.mkdir()
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("sharded_ranks.py")), str(folder)],
        env={**variables, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def results(sharded: Path) -> Results:
    found: Results = json.loads(sharded.with_name("results.json").read_text())
    return found


@pytest.mark.parametrize(("ranks", "begun"), [(2, 6), (3, 3)])
def test_training_goes_on_at_another_world_size_as_if_undisturbed(ranks: int, begun: int, results: Results) -> None:
    undisturbed = results["first"][0]["losses"]
    resumed = results[f"at {ranks}"]
    assert [one["begun"] for one in resumed] == [begun] * ranks
    for one in resumed:
        assert one["losses"] == pytest.approx(undisturbed[begun:], rel=1e-6)


def test_a_state_is_saved_as_it_was_when_training_has_gone_on_since(results: Results) -> None:
    # Step 3 was written only after step 3 had been trained: three ranks resume from it.
    assert results["at 3"][0]["losses"][0] == pytest.approx(results["first"][0]["losses"][3], rel=1e-6)


@pytest.mark.parametrize("scenario", ["first", "at 2", "at 3"])
def test_values_beside_the_sharded_tensors_come_back(scenario: str, results: Results) -> None:
    assert all(one["plain"] and one["plain tensors"] for one in results[scenario])


def test_each_rank_gets_its_own_generators_back_at_the_same_world_size(results: Results) -> None:
    assert [one["own generator"] for one in results["first"]] == [1000, 1001, 1002, 1003]


def test_at_another_world_size_own_entries_stay_as_they_are(results: Results) -> None:
    assert [one["own generator"] for one in results["at 2"] + results["at 3"]] == [True] * 5


def test_a_flipped_bit_in_any_file_is_seen_by_all_ranks_before_anything_is_loaded(results: Results) -> None:
    left, right = (one["seen"] for one in results["damage"])
    expected = {".metadata", "manifest.json", "tree.json", "rank-0003/tree.json"} | {
        f"__{n}_0.distcp" for n in range(4)
    }
    assert expected <= left.keys()
    assert left == right
    for name, (problem, untouched, resumed_from, skipped) in left.items():
        assert problem.startswith(f"DamagedCheckpoint: checkpoint of step 6 is not valid: {name} "), name
        assert (untouched, resumed_from, skipped) == (True, 3, [6]), name


def test_a_full_disk_on_one_rank_is_told_to_all_and_leaves_nothing(results: Results) -> None:
    for one in results["first"]:
        assert one["failure"].startswith("PartsMissing: checkpoint of step 7 could not be written: rank 1: OSError")
        assert one["left"] == ["step-000000003", "step-000000006"]


def test_ranks_that_see_other_steps_are_told(results: Results) -> None:
    for one in results["damage"]:
        assert one["steps"].startswith("RanksDisagree: the ranks read the steps [3, 6]")


def test_tensors_without_a_place_are_named(results: Results) -> None:
    for one in results["damage"]:
        assert "has 18 tensors without a place in into=, such as ['model.0.weight'" in one["places"]


def test_a_newer_attempt_fences_all_ranks(results: Results) -> None:
    assert [one["fenced"].split(":")[0] for one in results["damage"]] == ["FencedAttempt"] * 2


def test_a_rank_that_does_not_come_is_not_waited_for_for_ever(results: Results) -> None:
    assert results["damage"][0]["lost"].startswith("PartsMissing: saving step 11, rank 0 lost the others: ")


def test_all_ranks_of_another_library_s_loop_stop_and_save_as_one(results: Results) -> None:
    assert [one["library"] for one in results["damage"]] == [
        [training.BorderAction.STOP, 143, ["rank-0", "rank-1"]]
    ] * 2


def test_an_entry_that_differs_between_ranks_is_named_once(results: Results) -> None:
    said = "an entry of the state differs between ranks: name it in own=: position"
    assert [one["heard"] for one in results["damage"]] == [[said], []]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_pytorch_reads_the_folder_without_penstock(sharded: Path) -> None:
    expected = torch.load(sharded / "full.pt")
    model = {name: torch.zeros_like(tensor) for name, tensor in expected.items()}
    state = {"model": model, "plain": {"pair": None, "3": None}, "buffer": torch.zeros(3, dtype=torch.int64)}
    dcp.load(state, storage_reader=dcp.FileSystemReader(sharded / "step-000000006"), no_dist=True)
    assert all(torch.equal(state["model"][name], tensor) for name, tensor in expected.items())
    assert (state["plain"]["pair"], state["plain"]["3"], state["buffer"].tolist()) == ((1, "a"), "three", [0, 1, 2])


@pytest.fixture
def alone() -> Iterator[None]:
    """This process is a process group of one."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_memory_for_copies_is_kept_from_save_to_save(alone: None, folder: Path) -> None:
    layout, directory, state = ours.Sharded(), CheckpointDirectory(folder), {"a": torch.ones(5)}
    first = layout.stage(directory, state).shared["a"].data_ptr()
    assert layout.stage(directory, {"a": torch.zeros(5)}).shared["a"].data_ptr() == first


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(6.0).reshape(2, 3).T,
        lambda: torch.tensor(7, dtype=torch.int16),
        lambda: torch.zeros(0, 3),
        lambda: torch.tensor([1 + 2j]).conj(),
        lambda: torch.tensor([1.5, -2]).bfloat16(),
        lambda: torch.nn.Parameter(torch.ones(2)),
    ],
    ids=["transposed", "scalar", "empty", "conjugate", "bfloat16", "parameter"],
)
def test_any_tensor_survives_a_copy(make: Callable[[], Any], alone: None, folder: Path) -> None:
    layout, directory, tensor = ours.Sharded(), CheckpointDirectory(folder), make()
    directory.open()
    staged = layout.stage(directory, {"a": tensor})
    expected = tensor.detach().clone()
    tensor.detach().zero_()
    layout.write(directory, 1, staged)
    found = layout.read(directory, 1, {"a": torch.zeros_like(expected)}).state["a"]
    assert torch.equal(found, expected)


def test_a_checkpoint_of_another_layout_is_refused(alone: None, folder: Path) -> None:
    directory = CheckpointDirectory(folder)
    directory.open()
    directory.write(1, {"a": torch.ones(5)})
    with pytest.raises(BadArgument, match="layout 'whole'; expected 'dcp'"):
        ours.Sharded().read(directory, 1, {"a": torch.ones(5)})


def test_a_tensor_of_another_shape_is_refused(alone: None, folder: Path) -> None:
    layout, directory = ours.Sharded(), CheckpointDirectory(folder)
    directory.open()
    layout.write(directory, 1, layout.direct(directory, {"a": torch.ones(5)}))
    with pytest.raises(BadArgument, match="step 1 does not fit into=: rank 0: ValueError: Size mismatch"):
        layout.read(directory, 1, {"a": torch.ones(4)})


@pytest.mark.parametrize(("name", "problem"), [("tree.json", "has checksum"), ("__0_0.distcp", "cannot be read")])
def test_damage_between_verifying_and_loading_is_still_seen(
    name: str, problem: str, alone: None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, directory = ours.Sharded(), CheckpointDirectory(folder)
    directory.open()
    layout.write(directory, 1, layout.direct(directory, {"a": torch.ones(5), "b": "x"}))
    monkeypatch.setattr(CheckpointDirectory, "verify_blobs", lambda *_: None)
    path = folder / "step-000000001" / name
    if name == "tree.json":
        path.write_bytes(path.read_bytes().replace(b"x", b"y"))
    else:
        path.unlink()
    with pytest.raises(DamagedCheckpoint, match=problem):
        layout.read(directory, 1, {"a": torch.ones(5)})


def no_room(patch: pytest.MonkeyPatch) -> None:
    """There is enough memory, and more than the job may take."""
    patch.setattr(hostmemory, "spare_bytes", lambda: 20)


def no_memory(patch: pytest.MonkeyPatch) -> None:
    real = torch.zeros

    def zeros(shape: Any, **options: Any) -> Any:
        if shape == (5,):
            raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")
        return real(shape, **options)

    patch.setattr("torch.zeros", zeros)


@pytest.mark.parametrize("shortage", [no_room, no_memory])
def test_without_memory_for_copies_training_waits_for_the_save(
    shortage: Any, alone: None, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with training.session(folder, layout=ours.Sharded()) as run:
        run.resume(None)
        with monkeypatch.context() as patch:
            shortage(patch)
            for _ in run.steps(2, capture=lambda: {"a": torch.ones(5)}, final=False):
                run.request_checkpoint()
        assert run.checkpoints is not None
        assert run.checkpoints.steps() == [1]
    assert "no memory for a copy of the state: training waits for each save" in caplog.messages


def test_whatever_a_rank_meets_is_told_to_the_others(alone: None) -> None:
    with pytest.raises(PartsMissing, match="rank 0: ZeroDivisionError: "):
        group.Ranks(1, 60).everywhere(lambda: 1 // 0)


def test_without_a_process_group_it_says_what_to_call(folder: Path) -> None:
    with training.session(folder, layout=ours.Sharded()) as run, pytest.raises(BadArgument, match="init_process_group"):
        run.checkpoint(lambda: {"a": torch.ones(1)}, step=1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: {"a": {"b": torch.ones(1)}, "a.b": torch.ones(1)}, "two tensors of the state are named 'a.b'"),
        (lambda: {"a": {1: "x", "1": "y"}}, r"two values of the state have one name .* a\.1"),
    ],
    ids=["tensors", "values"],
)
def test_two_values_of_one_name_are_refused_before_the_first_save(
    make: Callable[[], dict[str, Any]], message: str
) -> None:
    with pytest.raises(UnsavableValue, match=message):
        ours.Sharded().prepare(make(), behind=True)


def test_waiting_takes_a_positive_time() -> None:
    with pytest.raises(BadArgument, match="wait_s is 0"):
        ours.Sharded(wait_s=0)
