"""Trainings that are sharded over all ranks, for `test_distributed`; what each rank saw goes to FOLDER/results.json.

    python sharded_ranks.py FOLDER

PyTorch is imported once, and each rank forked from there: the import takes longer than all the rest.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

from penstock import training
from penstock.training.distributed import Sharded
from penstock.training.foreign import ForeignLoop
from penstock.training.storage import durable
from penstock.training.storage.checkpoints import folder_name
from penstock.training.torch import RankConsensus
from tests.training.ranks.rendezvous import free_port

ROWS, STEPS, FIRST_SAVE, SECOND_SAVE = 12, 8, 3, 6
PLAIN = {"nested": [1, {"x": 2.5}, [None, True]], "pair": (1, "a"), 3: "three", "empty": {}}


class Trainer:
    """A small model in float64, sharded unevenly; each step trains on the same rows at any number of ranks."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(torch.nn.Linear(10, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3)).double()
        for layer in self.model:
            fully_shard(layer)
        fully_shard(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.05)
        self.mine = torch.Generator().manual_seed(100 * dist.get_world_size() + dist.get_rank())
        self.extra: dict[str, Any] = {"plain": PLAIN, "buffer": torch.arange(3), "held": (torch.ones(2), 1)}

    def state(self) -> dict[str, Any]:
        weights, moments = get_state_dict(self.model, self.optimizer)
        random = training.random_state(mine=self.mine)
        return {"model": weights, "optimizer": moments, "random": random, **self.extra}

    def load(self, state: Mapping[str, Any]) -> None:
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])

    def train(self, step: int) -> float:
        """Return the loss over all rows."""
        generator = torch.Generator().manual_seed(step)
        rows = torch.randn(ROWS, 10, generator=generator, dtype=torch.float64)
        wanted = rows.sum(dim=1, keepdim=True).expand(-1, 3)
        own = slice(dist.get_rank(), None, dist.get_world_size())
        self.optimizer.zero_grad()
        loss = (self.model(rows[own]) - wanted[own]).square().mean()
        loss.backward()
        self.optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        return float(total) / dist.get_world_size()


class Held(Sharded):
    """Writes only when it is told to: by then training has gone on."""

    def __init__(self) -> None:
        super().__init__(own=["random"], wait_s=60)
        self.go = threading.Event()

    def write(self, *arguments: Any) -> Any:
        assert self.go.wait(60)
        return super().write(*arguments)


def caught(work: Callable[[], object]) -> str:
    try:
        work()
    except training.TrainingError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def first(folder: Path) -> dict[str, Any]:
    """Train to the end; save twice from beside; fail once on one rank only."""
    layout, trainer, losses = Held(), Trainer(1), []
    with training.session(folder, layout=layout) as run:
        for step in run.steps(STEPS, capture=trainer.state, agree=RankConsensus(), final=False):
            losses.append(trainer.train(step))
            if step == FIRST_SAVE:
                layout.go.set()
            if step + 1 in (FIRST_SAVE, SECOND_SAVE):
                run.request_checkpoint()
            if step + 1 == SECOND_SAVE:
                trainer.mine.manual_seed(1000 + dist.get_rank())
                full = {name: tensor.full_tensor() for name, tensor in trainer.model.state_dict().items()}
                if dist.get_rank() == 0:
                    torch.save(full, folder / "full.pt")
        directory = run.checkpoints
    failure = with_a_full_disk(lambda: layout.write(directory, 7, layout.direct(directory, trainer.state())))
    other = Trainer(2)
    found = layout.read(directory, SECOND_SAVE, other.state()).state
    training.restore_random_state(found["random"], mine=other.mine)
    return {
        "losses": losses,
        "failure": failure,
        "left": sorted(path.name for path in folder.iterdir() if path.is_dir()),
        "own generator": other.mine.initial_seed(),
        "plain": found["plain"] == PLAIN and list(map(type, found["plain"])) == list(map(type, PLAIN)),
        "plain tensors": torch.equal(found["buffer"], torch.arange(3)) and torch.equal(found["held"][0], torch.ones(2)),
    }


def with_a_full_disk(work: Callable[[], object]) -> str:
    """Do the work while rank 1 alone can write nothing."""
    real = durable.SummedFile.write

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    if dist.get_rank() == 1:
        durable.SummedFile.write = full  # type: ignore[method-assign]
    try:
        return caught(work)
    finally:
        durable.SummedFile.write = real  # type: ignore[method-assign]


def resume(folder: Path) -> dict[str, Any]:
    """Go on from the newest checkpoint to the end."""
    trainer, losses = Trainer(2), []
    trainer.extra = {"plain": {}, "buffer": torch.zeros(3, dtype=torch.int64), "held": (torch.zeros(2), 0)}
    before = trainer.mine.get_state()
    with training.session(folder, layout=Sharded(own=["random"], wait_s=60)) as run:
        state = run.resume(None, into=trainer.state())
        assert state is not None
        trainer.load(state)
        begun = run.step
        for step in run.steps(STEPS, capture=trainer.state, agree=RankConsensus(), final=False):
            losses.append(trainer.train(step))
    return {
        "begun": begun,
        "losses": losses,
        "plain": state["plain"] == PLAIN,
        "plain tensors": state["buffer"].tolist() == [0, 1, 2] and state["held"][0].tolist() == [1, 1],
        "own generator": torch.equal(state["random"]["named"]["mine"], before),
    }


def damage(folder: Path) -> dict[str, Any]:
    """Flip one bit in each file of the newest checkpoint by turns; see what each rank resumes from."""
    layout, trainer = Sharded(own=["random"], wait_s=60), Trainer(3)
    place = training.Place(None, None, dist.get_rank(), dist.get_world_size())
    newest = folder / folder_name(SECOND_SAVE)
    names = sorted(str(path.relative_to(newest)) for path in newest.rglob("*") if path.is_file())
    seen: dict[str, Any] = {}
    for number, name in enumerate(names):
        copy = folder.with_name(f"damaged-{number}")
        if dist.get_rank() == 0:
            shutil.copytree(folder, copy)
            raw = bytearray((copy / newest.name / name).read_bytes())
            raw[len(raw) // 2] ^= 16
            (copy / newest.name / name).write_bytes(raw)
        dist.barrier()
        directory = training.CheckpointDirectory(copy, place)
        before = trainer.model.state_dict()["0.weight"].to_local().clone()
        bad = caught(lambda d=directory: layout.read(d, 6, trainer.state()))
        untouched = torch.equal(trainer.model.state_dict()["0.weight"].to_local(), before)
        found, skipped = directory.newest_valid(lambda step, d=directory: layout.read(d, step, trainer.state()))
        assert found is not None
        seen[name] = [bad, untouched, found.manifest.step, [one.step for one in skipped]]
    return {"seen": seen, **disagree(folder, layout, trainer, place)}


def disagree(folder: Path, layout: Sharded, trainer: Trainer, place: training.Place) -> dict[str, Any]:
    """Ranks that are not of one mind, or of one attempt, or hold values that are not alike."""
    directory = training.CheckpointDirectory(folder, place)
    directory.open()
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(f"{record.getMessage()}: {record.__dict__.get('entry')}")  # type: ignore[method-assign]
    logging.getLogger("penstock.training").addHandler(handler)
    own = {**trainer.state(), "position": dist.get_rank()}
    steps = caught(lambda: layout.read(directory, 3 * (1 + dist.get_rank()), trainer.state()))
    small = {"plain": trainer.state()["plain"]}
    places = caught(lambda: layout.read(directory, 6, small))
    for step in (9, 12):
        layout.write(directory, step, layout.direct(directory, own))
    if dist.get_rank() == 0:
        training.CheckpointDirectory(folder, training.Place(None, 7)).open()
    dist.barrier()
    fenced = caught(lambda: layout.write(directory, 10, layout.direct(directory, own)))
    impatient = Sharded(own=["random"], wait_s=0.5)
    staged = impatient.stage(directory, own)
    lost = caught(lambda: impatient.write(directory, 11, staged)) if dist.get_rank() == 0 else "did not come"
    library = stopped_library(folder.with_name("library"))
    return {"steps": steps, "places": places, "heard": heard, "fenced": fenced, "lost": lost, "library": library}


def stopped_library(folder: Path) -> list[Any]:
    """One rank of a training that saves by itself is asked to stop."""
    with training.session(folder, rescue=False) as run:
        loop = ForeignLoop(run)
        loop.begin(0, 9)
        if dist.get_rank() == 1:
            run.request_stop()
        action = loop.border(4)
        loop.save(lambda one: (one / f"rank-{dist.get_rank()}").write_text("x"), action)
        try:
            loop.leave()
        except training.Preempted as leaving:
            code = leaving.code
    return [action, code, sorted(path.name for path in (folder / folder_name(4) / "files").iterdir())]


SCENARIOS: dict[str, tuple[Callable[[Path], dict[str, Any]], int]] = {
    "first": (first, 4),
    "at 2": (resume, 2),
    "at 3": (resume, 3),
    "damage": (damage, 2),
}


def one_rank(scenario: str, folder: Path, rank: int, port: int) -> None:
    work, ranks = SCENARIOS[scenario]
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo")
    seen = work(folder)
    folder.with_name(f"{scenario} {rank}.json").write_text(json.dumps(seen))
    dist.barrier()
    dist.destroy_process_group()


def together(scenario: str, folder: Path) -> list[Any]:
    """Run all ranks of a scenario; return what they saw, by rank."""
    port = free_port()
    children = []
    for rank in range(SCENARIOS[scenario][1]):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                one_rank(scenario, folder, rank, port)
                status = 0
            except BaseException:  # noqa: BLE001 - the status tells; nothing of this copy may run on
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        children.append(child)
    ended = [os.waitpid(child, 0)[1] for child in children]
    assert not any(ended), f"{scenario}: ranks ended with {ended}"
    return [json.loads(folder.with_name(f"{scenario} {rank}.json").read_text()) for rank in range(len(children))]


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    results = {"first": together("first", folder)}
    earlier = folder.with_name("earlier")
    shutil.copytree(folder, earlier)
    shutil.rmtree(earlier / folder_name(SECOND_SAVE))
    results |= {"at 2": together("at 2", folder), "at 3": together("at 3", earlier)}
    results["damage"] = together("damage", folder)
    folder.with_name("results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
