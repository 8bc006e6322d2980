"""Checkpoints of states that are sharded over all ranks (FSDP2, DTensor), which resume at another world size.

The format is PyTorch's own, `torch.distributed.checkpoint`: each rank writes the shards that it holds, and reads what
it needs of those of others. Penstock adds a work folder that appears under its final
name when every rank is done, checksums that are compared before anything is loaded, and one verdict on all ranks.

The ranks communicate in a group of their own (gloo), from the thread that saves: never mixed with training's groups.
Imported only by programs that use it; needs PyTorch 2.6.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.tensor import DTensor

from penstock.training.errors import (
    BadArgument,
    DamagedCheckpoint,
    PartsMissing,
    RanksDisagree,
    UnsavableValue,
)
from penstock.training.ranks.group import Ranks
from penstock.training.ranks.staging import Beside, refuse_too_much
from penstock.training.storage import durable
from penstock.training.storage.blobs import Folder, Ready, Shelf, read_all, write_pieces
from penstock.training.storage.checkpoints import Checkpoints, Found, folder_name, part_name
from penstock.training.storage.directory import CheckpointDirectory, on_disk
from penstock.training.storage.manifest import Blob, Manifest, ManifestProblem
from penstock.training.storage.values import TREE_NAME, State, decode_state, encode_state
from penstock.training.torch import TensorContent

DEFAULT_WAIT_S = 1800.0
NAMED_MAX = 5

_log = logging.getLogger("penstock.training")


@dataclass(frozen=True, slots=True)
class _Staged:
    """The share of one rank: the tensors that PyTorch writes, the other values, and this rank's own values."""

    shared: State
    tree: list[Ready]
    own: list[Ready]
    copied: bool


@dataclass(frozen=True, slots=True)
class _Written:
    """The files of one rank, and hashes of all its values beside tensors, by entry of the state."""

    blobs: list[Blob]
    digests: dict[str, str]


class Sharded:
    """A layout for `training.session(layout=Sharded())`: every rank saves its shards, any number of ranks resumes.

        from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

        def state():  # call it with the same model and optimizer on every rank
            weights, moments = get_state_dict(model, optimizer)
            return {"model": weights, "optimizer": moments, "random": training.random_state()}

        with training.session(layout=Sharded(own=["random"])) as run:
            found = run.resume(None, into=state())
            if found is not None:
                set_state_dict(model, optimizer, model_state_dict=found["model"], optim_state_dict=found["optimizer"])
            for step in run.steps(stop, capture=state, agree=Agreement()):
                ...

    `get_state_dict` names the optimizer's tensors after the parameters, and makes them where there are none yet: so
    `into=` has a place for every tensor of the checkpoint. Tensors are loaded into those of `into=`; all other values
    come back as they were saved, types included. Values other than DTensors must be alike on all ranks: rank 0's are
    kept. `torch.distributed.checkpoint.load` reads the folder of a checkpoint without this library.
    Its `.metadata` is a pickle: resume only from folders that no other user may write to.

    Args:
        own: names of entries of the state that each rank has its own of, without DTensors: generators, the position
            in a data source that is split. At another world size they are those of `into=`.
        wait_s: how long a rank waits for the others, their disks included, in seconds (> 0).
    Raises: BadArgument, at the first save or resume also where torch.distributed is not initialised.
    """

    together = True

    def __init__(self, *, own: Collection[str] = (), wait_s: float = DEFAULT_WAIT_S) -> None:
        if not wait_s > 0:
            raise BadArgument(f"wait_s is {wait_s}; expected a number of seconds above 0")
        self._own = frozenset(own)
        self._wait_s = wait_s
        self._ranks: Ranks | None = None
        self._copies: dict[str, torch.Tensor] = {}
        self._reserve = Beside("penstock-reserve")
        self._told: set[str] = set()

    def saves(self, rank: int) -> bool:
        return True

    def prepare(self, state: Mapping[str, Any], *, behind: bool) -> None:
        tensors: dict[str, Any] = {}
        pieces = encode_state(self._shared(state), put_tensor=partial(_put, tensors))
        staged = self._staged(pieces, tensors, state, copied=False)
        try:
            _planner().set_up_planner(staged.shared)
        except ValueError as error:
            raise UnsavableValue(f"two values of the state have one name in PyTorch's format: {error}") from None
        missing = self._lacking(tensors) if behind else {}
        if missing:
            self._reserve.begin(partial(self._get, missing))

    def stage(self, directory: Checkpoints, state: Mapping[str, Any]) -> Any:
        self._join(directory)
        tensors: dict[str, Any] = {}
        pieces = encode_state(self._shared(state), put_tensor=partial(_put, tensors))
        self._get(self._lacking(tensors))
        tasks = [partial(_copied, tensor, self._copies[name]) for name, tensor in tensors.items()]
        copies = dict(zip(tensors, durable.in_parallel(tasks), strict=True))
        if any(tensor.is_cuda for tensor in tensors.values()):
            torch.cuda.synchronize()
        return self._staged(pieces, copies, state, copied=True)

    def direct(self, directory: Checkpoints, state: Mapping[str, Any]) -> Any:
        self._join(directory)
        tensors: dict[str, Any] = {}
        pieces = encode_state(self._shared(state), put_tensor=partial(_put, tensors))
        return self._staged(pieces, tensors, state, copied=False)

    def write(self, directory: Checkpoints, step: int, staged: Any) -> Manifest:
        """Write this rank's share; return on every rank when the checkpoint is published.

        Raises: on every rank, the error of any rank: FencedAttempt; PartsMissing, naming ranks and reasons.
        """
        shared, ranks = on_disk(directory, "Sharded()"), self._join(directory)
        with ranks.lost(f"saving step {step}", PartsMissing):
            work = shared.folder / ranks.on_first(partial(_begin, shared, step))
            try:
                shares = ranks.everywhere(partial(_write_share, shared, work, staged, ranks))
                return ranks.on_first(partial(self._publish, shared, work, step, shares))
            except CheckpointException as error:
                raise PartsMissing(f"checkpoint of step {step} could not be written: {_reasons(error)}") from None
            finally:
                if ranks.rank == 0:
                    shared.discard(work)

    def read(self, directory: Checkpoints, step: int, into: Mapping[str, Any] | None) -> Found:
        """Return the state of `step`, its tensors loaded into those of `into`, once all checksums matched.

        Raises: the same on every rank: DamagedCheckpoint, before anything was loaded; BadArgument where `into` has
            no place for a tensor, or the checkpoint is of another layout; RanksDisagree.
        """
        shared, ranks = on_disk(directory, "Sharded()"), self._join(directory)
        with ranks.lost(f"reading step {step}", RanksDisagree):
            steps = ranks.everywhere(lambda: step)
            if len(set(steps)) > 1:
                raise RanksDisagree(f"the ranks read the steps {steps}; do all see the same checkpoint directory?")
            manifest = ranks.on_first(partial(_manifest, shared, step))
            mine = manifest.blobs[ranks.rank :: shared.place.world_size]
            ranks.everywhere(partial(shared.verify_blobs, step, mine))
            folder = shared.folder / folder_name(step)
            own = ranks.rank if manifest.world_size == shared.place.world_size else None
            state, tensors = ranks.here(partial(self._places, folder, manifest, into or {}, own))
            _load(folder, step, tensors, ranks.group)
        return Found(manifest, state)

    def _join(self, directory: Checkpoints) -> Ranks:
        if self._ranks is None:
            self._ranks = Ranks(directory.place.world_size, self._wait_s)
        return self._ranks

    def _publish(self, directory: CheckpointDirectory, work: Path, step: int, shares: list[_Written]) -> Manifest:
        for name in shares[0].digests:
            if name not in self._told and len({share.digests.get(name) for share in shares}) > 1:
                self._told.add(name)
                _log.warning("an entry of the state differs between ranks: name it in own=", extra={"entry": name})
        return directory.publish(work, step, [blob for share in shares for blob in share.blobs], layout="dcp")

    def _shared(self, state: Mapping[str, Any]) -> State:
        return {name: value for name, value in state.items() if name not in self._own}

    def _of_rank(self, state: Mapping[str, Any]) -> State:
        return {name: value for name, value in state.items() if name in self._own}

    def _staged(self, pieces: Any, tensors: Mapping[str, Any], state: Mapping[str, Any], *, copied: bool) -> _Staged:
        """Everything beside tensors is small, and copied in any case."""
        files = {piece.name: memoryview(b"".join(piece.windows())) for piece in pieces}
        shared = _without_tuples(decode_state(files.__getitem__, get_tensor=tensors.__getitem__))
        own = self._of_rank(state)
        of_rank = encode_state(own) if own else []
        return _Staged(
            shared,
            [Ready(name, (data,)) for name, data in files.items()],
            [Ready(piece.name, (memoryview(b"".join(piece.windows())),)) for piece in of_rank],
            copied,
        )

    def _lacking(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Return the local parts that have no memory for a copy, none being reserved any more. Raises: MemoryError."""
        self._reserve.wait()
        local = {name: _local(tensor) for name, tensor in tensors.items()}
        known = {name: copy for name, copy in self._copies.items() if name in local and _alike(copy, local[name])}
        missing = {name: tensor for name, tensor in local.items() if name not in known}
        self._copies = known
        if missing:
            refuse_too_much(sum(tensor.numel() * tensor.element_size() for tensor in missing.values()))
        return missing

    def _get(self, missing: Mapping[str, Any]) -> None:
        for name, tensor in missing.items():
            try:
                self._copies[name] = torch.zeros(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
            except RuntimeError as error:
                raise MemoryError(str(error)) from error

    def _places(
        self, folder: Path, manifest: Manifest, into: Mapping[str, Any], own: int | None
    ) -> tuple[State, dict[str, Any]]:
        """Return the state with the tensors of `into` in their places, and those tensors by name, not loaded yet.

        Args:
            own: the rank whose own entries are read; None: they are those of `into`.
        """
        there: dict[str, Any] = {}
        encode_state(self._shared(into), put_tensor=partial(_put, there))
        tensors: dict[str, Any] = {}
        missing: list[str] = []

        def place(name: str) -> Any:
            if name not in there:
                missing.append(name)
            else:
                tensors[name] = there[name]
            return there.get(name)

        try:
            values = [blob for blob in manifest.blobs if "/" not in blob.name and not _is_of_dcp(blob.name)]
            state = decode_state(read_all(Folder(folder), values).__getitem__, get_tensor=place)
            prefix = "" if own is None else f"{part_name(own)}/"
            files = [blob for blob in manifest.blobs if prefix and blob.name.startswith(prefix)]
            state |= (
                decode_state(read_all(Folder(folder), files, wanted=prefix).__getitem__)
                if files
                else self._of_rank(into)
            )
        except ManifestProblem as problem:
            raise DamagedCheckpoint(manifest.step, str(problem)) from None
        if missing:
            raise BadArgument(
                f"checkpoint of step {manifest.step} has {len(missing)} tensors without a place in into=, such as "
                f"{missing[:NAMED_MAX]}; expected the whole state, with the optimizer's as get_state_dict() makes it"
            )
        return state, tensors


class _SummingFiles(FileSystem):  # type: ignore[misc]
    """Computes checksums while PyTorch writes; else every file would have to be read again."""

    def __init__(self) -> None:
        self.written: dict[str, durable.Written] = {}

    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        with durable.SummedFile(Path(path)) as file:
            yield file
        self.written[Path(path).name] = file.written

    def rename(self, path: Any, new_path: Any) -> None:
        super().rename(path, new_path)
        self.written[Path(new_path).name] = self.written.pop(Path(path).name)


def _begin(directory: CheckpointDirectory, step: int) -> str:
    directory.fence.check()
    work = directory.work_folder(step)
    durable.create_folder(work)
    return work.name


def _write_share(directory: CheckpointDirectory, work: Path, staged: _Staged, ranks: Ranks) -> _Written:
    files = _SummingFiles()
    writer = dcp.FileSystemWriter(work, sync_files=False, per_thread_copy_ahead=0 if staged.copied else 10_000_000)
    writer.fs = files
    with torch.no_grad():
        dcp.save(staged.shared, storage_writer=writer, planner=_planner(), process_group=ranks.group)
    blobs = [Blob(name, written.size_bytes, written.checksum) for name, written in files.written.items()]
    if ranks.rank == 0:
        blobs += write_pieces(Folder(work), staged.tree, Shelf(), compress=directory.compress)
    if staged.own:
        name = part_name(ranks.rank)
        durable.create_folder(work / name)
        blobs += write_pieces(Folder(work / name), staged.own, Shelf(), compress=directory.compress, prefix=f"{name}/")
        durable.sync_folder(work / name)
    durable.sync_folder(work)
    return _Written(blobs, _digests(staged.tree))


def _manifest(directory: CheckpointDirectory, step: int) -> Manifest:
    manifest = directory.manifest(step)
    if manifest.layout != "dcp":
        raise BadArgument(
            f"checkpoint of step {step} has layout {manifest.layout!r}; expected 'dcp', as Sharded() writes it. "
            "Resume with the layout that wrote it."
        )
    return manifest


def _planner() -> Any:
    """Of values that several ranks hold, the lowest rank writes: so the owner needs no communication."""
    return dcp.DefaultSavePlanner(dedup_save_to_lowest_rank=True)


def _load(folder: Path, step: int, tensors: dict[str, Any], group: Any) -> None:
    """Fill the tensors, in place."""
    try:
        with torch.no_grad():
            dcp.load(tensors, storage_reader=dcp.FileSystemReader(folder), process_group=group)
    except CheckpointException as error:
        if any(isinstance(failure, OSError) for failure, _ in error.failures.values()):
            raise DamagedCheckpoint(step, f"cannot be read: {_reasons(error)}") from None
        raise BadArgument(f"checkpoint of step {step} does not fit into=: {_reasons(error)}") from None


def _put(tensors: dict[str, Any], tensor: Any, name: str) -> None:
    if name in tensors:
        raise UnsavableValue(f"two tensors of the state are named {name!r}; expected different keys")
    tensors[name] = tensor


def _local(tensor: Any) -> Any:
    with torch.no_grad():
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor.detach()


def _alike(one: Any, other: Any) -> bool:
    return bool(one.shape == other.shape and one.dtype == other.dtype)


def _copied(tensor: Any, memory: torch.Tensor) -> Any:
    """Return the tensor with its local part in `memory`; from a device, when that has been synchronized."""
    local = _local(tensor)
    if type(local) in (torch.Tensor, torch.nn.Parameter) and not (local.is_cuda or local.is_conj() or local.is_neg()):
        TensorContent(local).copy_to(TensorContent(memory).view())  # between host buffers twice as fast as copy_()
    else:
        with torch.no_grad():
            memory.copy_(local, non_blocking=memory.is_pinned())
    return DTensor(memory, tensor._spec, requires_grad=False) if isinstance(tensor, DTensor) else memory


def _without_tuples(value: Any) -> Any:
    """Return the state with lists for tuples that hold tensors: PyTorch's format looks into lists only."""
    if isinstance(value, dict):
        return {key: _without_tuples(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_without_tuples(item) for item in value]
        return tuple(items) if isinstance(value, tuple) and not any(map(_holds_tensors, items)) else items
    return value


def _holds_tensors(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_tensors, value.values()))
    return any(map(_holds_tensors, value)) if isinstance(value, list | tuple) else isinstance(value, torch.Tensor)


def _is_of_dcp(name: str) -> bool:
    return name == ".metadata" or name.endswith(".distcp")


def _digests(tree: Sequence[Ready]) -> dict[str, str]:
    """Return the hash of each entry of a state, without its tensors."""
    raw = next(piece for piece in tree if piece.name == TREE_NAME)
    entries = json.loads(b"".join(raw.windows))
    return {name: durable.checksum([json.dumps(node).encode("ascii")]) for name, node in entries.items()}


def _reasons(error: Any) -> str:
    failures = error.failures.items()
    return "; ".join(f"rank {rank}: {type(one).__name__}: {one}" for rank, (one, _) in list(failures)[:NAMED_MAX])
