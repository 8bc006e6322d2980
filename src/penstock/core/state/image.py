"""What a snapshot stores of a state."""

import msgspec

from penstock.core.model.access import Token
from penstock.core.model.batching import KindSteps
from penstock.core.model.cluster import ClusterConfig, Node
from penstock.core.model.ids import Epoch
from penstock.core.model.jobs import Job, JobSpec
from penstock.core.model.matching import KindSpeeds
from penstock.core.model.schedules import Schedule
from penstock.core.model.secrets import Secret
from penstock.core.place.workload_mix import Memory
from penstock.core.state.accounts import MoneyImage
from penstock.core.state.demand import DemandImage
from penstock.core.state.idempotency import IdempotencyEntry
from penstock.core.state.identity import Identity
from penstock.core.state.indexes import PastUse
from penstock.core.state.past_runs import NodeRuns
from penstock.core.state.powers import ModelPower
from penstock.core.state.quota_notes import QuotaSaid
from penstock.core.state.subscriptions import Subscription


class Image(msgspec.Struct, frozen=True):
    """Everything of a state that cannot be derived from the rest of it: what a snapshot stores."""

    seq: int
    time_ms: int
    epoch: Epoch
    next_job: int
    next_port: int
    config: ClusterConfig
    nodes: list[Node]
    jobs: list[Job]
    idempotency: dict[str, IdempotencyEntry]
    finished_ok: int
    finished_bad: int
    past_use: list[PastUse] = []
    requests: Memory = Memory([], (), 0)
    money: MoneyImage = MoneyImage()
    tokens: tuple[Token, ...] = ()
    secrets: tuple[Secret, ...] = ()
    quota_notes: tuple[QuotaSaid, ...] = ()
    subscriptions: tuple[Subscription, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    specs: tuple[JobSpec, ...] = ()
    """In stored images: specs that several jobs share (`images.py`)."""
    spec_of: tuple[int, ...] = ()
    """In stored images, for each job: its place among `specs`."""
    unmet_by_run: bool = False
    """`Job.unmet` names runs of jobs by their first; in images of former versions it has each job by itself."""
    identity: Identity = Identity()
    powers: tuple[ModelPower, ...] = ()
    """Measured power of devices by model."""
    past_runs: tuple[NodeRuns, ...] = ()
    """How replicas ended on each node."""
    model_speeds: tuple[KindSpeeds, ...] = ()
    """How fast jobs of each kind were on device models."""
    steps: tuple[KindSteps, ...] = ()
    """What jobs of each kind measured with their batches."""
    demand: DemandImage = DemandImage()
    """Demand by the hour, and whether room for it has paid."""
