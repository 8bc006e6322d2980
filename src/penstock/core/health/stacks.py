"""Activity of a rank by its stack: it waits for others or for data, saves, or is in code of its own.

The patterns were read off real hangs of PyTorch 2.13 with gloo. A pattern of waiting counts only if every frame inside
it belongs to the library: a hook of the program that runs within the backward pass is code of its own. With NCCL a rank
waits at the next synchronisation, often in a frame of the program, and its CPU may spin: that was not tried, and
findings will be less precise there.
"""

from collections.abc import Sequence

from penstock.core.model.hangs import Activity, Frame, Sight

BUSY_MILLI = 100
"""Above this share of one CPU a rank computes. Gloo's waits use none."""

_NOISE = ("torch/distributed/c10d_logger.py",)
_COLLECTIVES = (
    "torch/distributed/distributed_c10d.py",
    "torch/distributed/_functional_collectives.py",
    "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py",
    "torch/distributed/utils.py",
)
_WAITING_CALLS = {
    "torch/nn/parallel/distributed.py": ("_sync_buffers", "_distributed_broadcast_coalesced", "_sync_module_states"),
    "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py": ("unshard", "pre_forward", "pre_backward"),
}
_BACKWARD = ("_engine_run_backward", "torch/autograd/graph.py")
_DATA = ("torch/utils/data/dataloader.py", "torch/utils/data/_utils/fetch.py")
_SAVING = (
    "torch/serialization.py",
    "torch/distributed/checkpoint/",
    "penstock/training/storage/",
    "penstock/training/saver.py",
    "penstock/training/blobs.py",  # this and the next two: in former versions of the SDK
    "penstock/training/durable.py",
    "penstock/training/directory.py",
)
_NATIVE_WAITS = ("Reducer::finalize_backward", "c10d::Work::wait", "TCPStore::doWait", "UnboundBuffer::wait")


def activity(sight: Sight) -> Activity:
    """Return the rank's activity."""
    if sight.state in ("X", "Z"):
        return "gone"
    if sight.state in ("T", "t") or sight.child_stopped:
        return "stopped"
    if not sight.stack:
        return "unknown"
    busy = sight.cpu_milli >= BUSY_MILLI or sight.changed
    if any(_is(frame, _DATA) for frame in sight.stack):
        return "computes" if busy else "data"
    if any(wait in name for name in sight.native for wait in _NATIVE_WAITS):
        return "waits"
    if waits_in(sight.stack) is not None:
        return "computes" if sight.changed or (busy and _is_backward(_inner(sight.stack)[0])) else "waits"
    if any(_is(frame, _SAVING) for frame in sight.stack):
        return "saves"
    return "computes" if busy else "blocked"


def waits_in(stack: Sequence[Frame]) -> Frame | None:
    """Return the call in which a rank waits for others, None where its stack shows none."""
    for index, frame in enumerate(_inner(stack)):
        name = frame.function.rpartition(".")[2]
        if _is(frame, _COLLECTIVES):
            return frame
        if any(frame.file.endswith(file) and name in calls for file, calls in _WAITING_CALLS.items()):
            return frame
        if _is_backward(frame):
            return frame if index == 0 else None
        if "/torch/" not in frame.file:
            return None
    return None


def own_frame(stack: Sequence[Frame]) -> Frame | None:
    """Return the innermost call of the program itself."""
    for frame in stack:
        library = "/site-packages/" in frame.file or "/lib/python" in frame.file or frame.file.startswith("<")
        if not library and "penstock/training/" not in frame.file:
            return frame
    return stack[0] if stack else None


def _inner(stack: Sequence[Frame]) -> Sequence[Frame]:
    return [frame for frame in stack if not _is(frame, _NOISE)] or stack


def _is_backward(frame: Frame) -> bool:
    return frame.function == _BACKWARD[0] and frame.file.endswith(_BACKWARD[1])


def _is(frame: Frame, files: Sequence[str]) -> bool:
    return any(file in frame.file for file in files)
