"""The settings of the scheduler and of the protocol with the nodes, as an operator declares them."""

from typing import Literal

import msgspec

ShownHolders = Literal["own", "tenants", "users"]
"""What users see of other tenants' allocations: nothing, which tenant holds them, or also which of its users."""


class Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Numbers of the scheduler and of the protocol with the nodes; durations in milliseconds."""

    wait_bonus_max: int = 100
    """Points of priority that a job gains while it waits, reached after `wait_bonus_horizon`."""
    wait_bonus_horizon_ms: int = 3_600_000
    """Wait after which the bonus is whole; it grows evenly from the submit, kept over requeues."""
    size_penalty_per_device: int = 10
    """Points of priority that a job loses for each device that it asks for."""
    min_runtime_before_preemption_ms: int = 0
    """An attempt runs this long before it may be preempted, where its queue does not say."""
    starvation_after_ms: int = 345_600_000
    """A job that has waited this long and could not start holds back later jobs of its pool. The bound grows with the
    backlog: it is doubled where waiting jobs ask for as many devices as the pool has."""
    starvation_ratio: int = 5
    """A job waits this many times its expected length longer before it holds back others."""
    ageing_ms: int = 691_200_000
    """A `shortest_predicted` queue counts a wait of this long like half the predicted device time."""
    predict_run_times: bool = True
    """Expect jobs to run as long as those like them did; what a job declares is a bound."""
    estimate_starts_every_ms: int = 60_000
    """The server works out when waiting jobs start this often, and notes some of it, to learn how right it was; 0 does
    so only when it is asked."""
    lease_ttl_ms: int = 30_000
    """The server counts a node as lost after this long without a heartbeat."""
    lease_margin_ms: int = 8_000
    """The node ends its processes this much earlier than the server counts it as lost."""
    heartbeat_ms: int = 1_000
    """A node reports to the server this often."""
    grace_default_ms: int = 30_000
    """Time between the stop signal and the kill, where the job does not say."""
    restart_cost_ms: int = 10_000
    """Assumed overhead of starting an attempt again, in device-time of one device; part of a victim's cost."""
    checkpoint_cost_ms: int = 2_000
    """Assumed time to save before leaving; part of a victim's cost."""
    priority_cost_ms_per_point: int = 1_000
    """What a point of priority adds to a victim's cost, per device."""
    victim_sets_tried_max: int = 256
    """Sets of victims tried in order of cost before the search falls back to greedy."""
    infrastructure_retries_max: int = 50
    """Attempts of one job that may be lost to nodes and the scheduler before it counts as failed."""
    node_strikes_max: int = 3
    """A node that fails this often within `node_strikes_window` gets no new work until it passes a check; 0: never.
    What programs of one tenant alone say of it keeps only that tenant's work away."""
    node_strikes_window_ms: int = 3_600_000
    """Failures of a node that are older than this do not count."""
    device_open_after_ms: int = 600_000
    """A device that its node closed is opened again after this long without a fault; twice as long with each time that
    it was closed within `node_strikes_window`, at most a day; 0: only by hand."""
    mig_divide_after_ms: int = 10_000
    """A device of a pool with a `mig_strategy` is divided once its MIG instances and their holders have not changed for
    this long."""
    node_check: str = ""
    """A command for /bin/sh that checks a node (0: it is fit); empty takes our own, of disk, memory and devices.
    It runs beside jobs: what a program claims of an open node leads to a check, too."""
    preparing_limit_ms: int = 3_600_000
    """Each thing that a job needs on a node before it starts, such as its environment, may take this long to make."""
    environments_kept_gib: int = 20
    """Environments and results of setup steps that nothing uses stay on a node up to this size (GiB), the same of what
    uv has downloaded for an account."""
    scale_command: str = ""
    """A command for /bin/sh that gets nodes: what is missing comes as JSON on its standard input."""
    scale_url: str = ""
    """Where what is missing is posted to, where no command is declared."""
    scale_after_ms: int = 60_000
    """Jobs that have waited for capacity this long count as missing it."""
    scale_every_ms: int = 120_000
    """The provider is asked again after this long."""
    same_failures_max: int = 3
    """A job that fails this often in the same way at the same step is not tried again; 0 tries all its retries."""
    backoff_first_ms: int = 1_000
    """Wait of a job after its first failed attempt; it doubles with each."""
    backoff_max_ms: int = 300_000
    """The longest wait after a failed attempt."""
    starts_per_cycle_max: int = 1_000
    """Jobs that one cycle starts; the next cycle follows at once."""
    fair_share_half_life_ms: int = 0
    """After this long half of a queue's past use is forgotten; 0 looks at present use only."""
    least_attained_step_device_ms: int = 57_600_000
    """Service after which a job of a `least_attained` queue falls one level (16 device-hours, as Tiresias)."""
    least_attained_turn_milli: int = 500
    """An attempt in a `least_attained` queue runs this many times as long as its job waited for it, at least a minute,
    before a job with less service may take its place; 0: no such time."""
    admission_milli: int = 0
    """A `least_attained` queue lets jobs take turns up to this load of its pool, and the others are not started; 0 sets
    no limit."""
    backfill_depth_max: int = 64
    """Reservations that conservative backfill keeps at once."""
    elastic_growth_period_ms: int = 60_000
    """An elastic job is left alone this long after a change of its size; less where a restart costs less."""
    suspended_max_ms: int = 3_600_000
    """An attempt that is suspended this long saves and leaves: it can resume elsewhere, and others get its memory."""
    elastic_data_wait_max_milli: int = 500
    """An elastic job that waits for data for more of its time than this gets no more replicas; 1: it may."""
    elastic_shrink_idle: bool = False
    """An elastic job that computes for less than three tenths of its time continues with half of its replicas."""
    defrag: bool = False
    """Let jobs that can save move elsewhere when a gang fits only then. A dry run shows what it would do."""
    defrag_gain_milli: int = 1_500
    """Moving jobs to make room must gain this many times what it costs."""
    preemptive_utilisation_milli: int = 800
    """Above this use of the devices a cycle tries more sets of victims while critical jobs wait."""
    immediate_utilisation_milli: int = 300
    """Below this use of the devices a cycle lets no jobs gather (`batching_window`)."""
    predictive_waiting_min: int = 10
    """With more waiting jobs than this a cycle lets no jobs gather, and keeps room for demand that is expected."""
    predictive_share_milli: int = 100
    """Room for demand that is expected takes at most this share of a pool's devices; 0: none is kept."""
    predictive_ahead_ms: int = 1_800_000
    """Such room is kept from this long before the hour in which the demand is expected; at most an hour."""
    predictive_confidence_milli: int = 750
    """The demand that room is kept for is so great that an hour brings as much at least this often."""
    predictive_gain_milli: int = 1_500
    """Room is kept where the wait that it saved was at least this many times the device time that it left idle."""
    critical_priority: int = 1_000
    """Jobs of this priority or higher are critical."""
    batching_window_ms: int = 0
    """How long a cycle that calls for no haste lets jobs gather before the next; 0 plans whenever something changed."""
    objective_utilisation_milli: int = 300
    """Weight of the devices in use when candidate plans are compared; the five weights sum to 1."""
    objective_response_time_milli: int = 250
    """Weight of short waits."""
    objective_fairness_milli: int = 200
    """Weight of even shares."""
    objective_energy_milli: int = 150
    """Weight of low power."""
    objective_cost_milli: int = 100
    """Weight of low cost."""
    holders_shown: ShownHolders = "own"
    """What people see of who holds what in tenants that are not theirs."""
    default_tenant: str = ""
    """Tenant of jobs that name none, where their user has no default and not just one tenant."""
    default_queue: str = ""
    """Queue of jobs that name none, where their user has no default."""
    job_account: str = ""
    """Account of the machines for jobs whose user has none of their own, where the server is root."""
    allow_waiting_for_nodes: bool = False
    """Accept requests that no present node could hold even when empty."""
    container_runtimes: str = ""
    """What images of jobs may run in, such as `podman, charliecloud`; empty: all that are known; `none`: jobs have no
    images."""
    container_mounts: str = ""
    """Folders of the nodes that jobs with an image may mount, such as `/data, /scratch`; empty: none but their own."""
    agent_servers: str = ""
    """Where nodes of other machines may find servers besides, such as `new.example.org:7070`: standbys, and where this
    server will listen. They learn it over their connections."""
    input_protocols: str = ""
    """Protocols of the URLs that `inputs` of jobs may name, such as `s3, https`; empty: all that are known."""
    input_hosts: str = ""
    """Hosts, or buckets, that `inputs` may be fetched from, such as `*.example.org, training-data`; empty: all."""
    input_max_bytes: int = 2**40
    """Size of one input of a job."""
    inputs_kept_bytes: int = 200 * 2**30
    """A node keeps inputs that no job uses up to this size; the longest unused are removed first."""
    inputs_kept_ms: int = 1_209_600_000
    """A node removes an input that no job has used for this long."""
