"""Checkpoints, preemption and progress for training scripts, under Penstock and without it.

    from penstock import training

    with training.session("checkpoints") as run:
        state = run.resume({"weights": initial_weights()})
        for step in run.steps(1000, capture=lambda: state):
            state["weights"], loss = train_one_step(state["weights"], step)
            run.report(loss=loss)

The newest valid checkpoint is restored; the state is saved at an interval, on request and before a
preemption; the agent learns how it goes. Needs xxhash beside the standard library; NumPy arrays and PyTorch
state_dicts are saved as such where those libraries are in use (`penstock.training.torch` has more).
"""

from __future__ import annotations

from penstock.training.batches import GlobalBatch, Round, SampleOrder
from penstock.training.batching.batch import Batch, Rule
from penstock.training.batching.orders import Share
from penstock.training.environment import Environment, read_environment
from penstock.training.errors import (
    BadArgument,
    BadEnvironment,
    DamagedCheckpoint,
    DirectoryBusy,
    FencedAttempt,
    NotMainThread,
    PartsMissing,
    Preempted,
    RanksDisagree,
    ResumeNotCalled,
    StateMoved,
    TrainingError,
    UnsavableValue,
    WorldSizeMismatch,
)
from penstock.training.randomness import random_state, restore_random_state
from penstock.training.ranks.consensus import Agrees, BorderAction
from penstock.training.ranks.layouts import Layout, Parts, Whole
from penstock.training.session import Session, session
from penstock.training.storage.checkpoints import Checkpoints, Files, Found, Place, Skipped
from penstock.training.storage.directory import CheckpointDirectory
from penstock.training.storage.manifest import Blob, Manifest
from penstock.training.storage.remote import RemoteDirectory
from penstock.training.storage.values import State

__all__ = [
    "Agrees",
    "BadArgument",
    "BadEnvironment",
    "Batch",
    "Blob",
    "BorderAction",
    "CheckpointDirectory",
    "Checkpoints",
    "DamagedCheckpoint",
    "DirectoryBusy",
    "Environment",
    "FencedAttempt",
    "Files",
    "Found",
    "GlobalBatch",
    "Layout",
    "Manifest",
    "NotMainThread",
    "Parts",
    "PartsMissing",
    "Place",
    "Preempted",
    "RanksDisagree",
    "RemoteDirectory",
    "ResumeNotCalled",
    "Round",
    "Rule",
    "SampleOrder",
    "Session",
    "Share",
    "Skipped",
    "State",
    "StateMoved",
    "TrainingError",
    "UnsavableValue",
    "Whole",
    "WorldSizeMismatch",
    "random_state",
    "read_environment",
    "restore_random_state",
    "session",
]
