// Made by `make ui` from the OpenAPI document of the server: do not edit.

/** Refused attempts of one subject, and their number. */
export type AccessEntry = {
  subject: string;
  what: string;
  count: number;
  first_ms: number;
  last_ms: number;
};

/** Attempts of one kind since the last such record: for administrators. Nothing secret is in it. */
export type AccessNoted = {
  type: "AccessNoted";
  kind: "act_refused" | "authority_replaced" | "certificate_replaced" | "login_failed" | "node_claimed_more" | "node_refused" | "secret_key_rotated";
  entries: Array<AccessEntry>;
};

export type AccountList = {
  currency: string;
  digits: number;
  priced: boolean;
  accounts: Array<AccountView>;
  time_zone: string;
  next_cursor: string;
  matching: number;
  groups: Array<GroupCount>;
  groups_left_out: number;
};

/** How a tenant's money stands; amounts in the currency's smallest unit. */
export type AccountView = {
  tenant: string;
  balance: number;
  credit: number;
  owed: number;
  unbilled: number;
  month_spent: number;
  day_cost: number;
  credit_limit: number;
  at_zero: string;
  left: number;
  held: string;
  credits: Array<Lot>;
  budgets: Array<BudgetView>;
};

/** What became of a selection: `matched` = `changed` + the counts in `unchanged`. */
export type ActionAnswer = {
  matched: number;
  changed: number;
  unchanged: Array<Unchanged>;
  jobs: Array<number>;
};

/** An action on all jobs of a selection. */
export type ActionRequest = {
  action: "cancel" | "edit" | "hold" | "release" | "requeue" | "requeue_hold" | "save";
  select: JobSelection;
  set: { [name: string]: unknown };
  dry_run: boolean;
  expect: number | null;
};

/** One rule about the replicas that a selector selects, in each domain of nodes with one value of a label. */
export type AffinityRule = {
  kind: "affinity" | "anti_affinity" | "spread";
  selector: string;
  domain?: string;
  max_skew?: number;
  domains_min?: number;
  honours_labels?: boolean;
  honours_taints?: boolean;
};

/** A problem that does not resolve itself. `code` is stable (`explain/reasons.py`). */
export type Alert = {
  code: string;
  job_ids: Array<number>;
  count: number;
  text: string;
  resolve: string;
};

/** Alerts, most severe first. */
export type AlertList = {
  alerts: Array<Alert>;
  next_cursor: string;
  matching: number;
  groups: Array<GroupCount>;
  groups_left_out: number;
};

/** One bar: what an attempt held on one node in [start_ms, end_ms) (unix ms). */
export type AllocationView = {
  row: number;
  node: string;
  start_ms: number;
  end_ms: number | null;
  devices: Array<number>;
  held_devices: number;
  job?: number;
  attempt?: number;
  name?: string;
  tenant?: string;
  user?: string;
  outcome?: string;
  held?: boolean;
};

/** The places are held until each replica is gone: by a plan, or another `scheduler` with its `names` of them. */
export type AttemptAllocated = {
  type: "AttemptAllocated";
  job_id: number;
  attempt: number;
  places: Array<ReplicaPlace>;
  port?: number;
  rule?: string;
  waited_ms?: number;
  choice?: number;
  basis?: number;
  decided_ms?: number;
  scheduler?: string;
  names?: Array<string>;
  pairing?: Pairing | null;
  ports?: Array<number>;
  batch?: BatchChoice | null;
};

/** All replicas of the attempt are gone; what it held is free. */
export type AttemptEnded = {
  type: "AttemptEnded";
  job_id: number;
  attempt: number;
  outcome: "cancelled" | "drained" | "failed" | "held" | "hung" | "lost" | "moved" | "preempted" | "requeued" | "resized" | "succeeded" | "time_limit";
  detail?: string;
  step?: number;
  idle_ms?: number;
};

/** The timeline of a job: attempts and waits in order, the newest of each where there are many. */
export type AttemptList = {
  id: number;
  state: string;
  submitted_ms: number;
  finished_ms: number;
  attempts: Array<AttemptView>;
  waits: Array<Wait>;
  ranks: Array<RankView>;
  ranks_of: number;
  attempts_left_out: number;
  waits_left_out: number;
  ranks_left_out: number;
};

/** A suspended attempt has its CPUs again, where it was, and runs. */
export type AttemptResumed = {
  type: "AttemptResumed";
  job_id: number;
  attempt: number;
  basis?: number;
  decided_ms?: number;
};

/** The replicas are asked to save and leave, and are ended after the grace. */
export type AttemptStopRequested = {
  type: "AttemptStopRequested";
  job_id: number;
  attempt: number;
  reason: "cancelled" | "device_failed" | "drained" | "held" | "hung" | "moved" | "node_lost" | "preempted" | "replica_failed" | "requeued" | "resized" | "suspended" | "time_limit";
  grace_ms: number;
  beneficiary?: number | null;
  cost?: number;
  rule?: string;
  basis?: number;
  decided_ms?: number;
  room?: Array<ReplicaPlace>;
  rooms?: Array<Room>;
};

/** All replicas are frozen: their CPUs are others' from now on. */
export type AttemptSuspended = {
  type: "AttemptSuspended";
  job_id: number;
  attempt: number;
};

/** One attempt: allocated, running once all its replicas have started, ended. */
export type AttemptView = {
  number: number;
  allocated_ms: number;
  running_ms: number;
  ended_ms: number;
  nodes: Array<string>;
  replicas: number;
  devices: number;
  outcome: string;
  detail: string;
  asked_ms: number;
  asked_reason: string;
  beneficiary: number | null;
  idle_ms: number;
  suspended_ms: number;
  resumed_step: number | null;
  lost_steps: number;
  saved_step: number | null;
  requeued: boolean;
  scheduler: string;
};

/** The batch sizes that a job accepts, in samples. */
export type BatchAsk = {
  smallest: number;
  largest: number;
  per_device_max: number;
  per_device_min?: number;
};

/** The batch that an attempt runs with: replicas x `local` x (`accumulation` + 1) samples an update. */
export type BatchChoice = {
  local: number;
  accumulation?: number;
};

/** A running attempt is to go on with another batch, where it is. */
export type BatchChosen = {
  type: "BatchChosen";
  job_id: number;
  attempt: number;
  batch: BatchChoice;
  basis?: number;
  decided_ms?: number;
};

/** What a program measured with one batch, since it chose that batch. */
export type BatchSeen = {
  local: number;
  accumulation?: number;
  step_us?: number;
  sync_us?: number;
  noise?: number;
};

/** Where the provider sends the browser back to. */
export type BeginSignIn = {
  redirect_uri: string;
};

/** What a tenant owes for [from_ms, until_ms). */
export type Bill = {
  tenant: string;
  currency: string;
  digits: number;
  from_ms: number;
  until_ms: number;
  lines: Array<InvoiceLine>;
  total: number;
};

/** What tenants owe for [from_ms, until_ms). */
export type BillList = {
  from_ms: number;
  until_ms: number;
  bills: Array<Bill>;
  priced: boolean;
  time_zone: string;
  from_time: string;
  until_time: string;
};

/** How the cluster is billed. Without prices it is not. */
export type Billing = {
  tariff?: Tariff;
  currency?: string;
  digits?: number;
  time_zone?: string;
  refund_lost?: boolean;
  at_zero?: "nothing" | "stop_starts" | "suspend" | "warn";
  issue?: "automatic" | "manual";
  invoice_prefix?: string;
  credit_note_prefix?: string;
  tax_name?: string;
  tax_milli?: number;
  issuer?: Party;
};

/** Estimates of a start within a time. */
export type Bucket = {
  within_ms: number;
  count: number;
  parts: Array<unknown>;
  error_ms: number;
};

/** A tenant's planned spending, in the currency's smallest unit: per period, or from one day to another. */
export type Budget = {
  name: string;
  amount: number;
  period?: "day" | "month" | "once" | "week" | "year";
  from_ms?: number;
  until_ms?: number;
  hard?: boolean;
  alerts?: Array<number>;
};

/** How a budget stands. */
export type BudgetView = {
  name: string;
  amount: number;
  from_ms: number;
  until_ms: number;
  spent: number;
  forecast_low: number;
  forecast_high: number;
  hard: boolean;
  until_time: string;
};

/** A plan that was weighed: scores from 0 to 1000 (more is better) and their weighted sum, 0 to 1,000,000. */
export type CandidatePlan = {
  placement: string;
  scores: Scores;
  weighted: number;
  chosen: boolean;
  on_front: boolean;
};

/** The provider of nodes was asked for more. */
export type CapacityRequested = {
  type: "CapacityRequested";
  job_ids: Array<number>;
  jobs: number;
  accepted: boolean;
  answer?: string;
};

/** Latest views of what has changed since the message before; a topic that was not asked for is absent. */
export type Changes = {
  time_ms: number;
  seq: number;
  jobs?: Array<JobView>;
  jobs_anew?: boolean;
  nodes?: Array<NodeView>;
  nodes_anew?: boolean;
  nodes_gone?: Array<string>;
  counts?: Counts | null;
  stale?: Array<"config" | "money" | "tokens">;
};

/** What the caller may choose from, as administrators declared it. */
export type Channels = {
  email_domains: Array<string>;
  webhook_hosts: Array<string>;
  commands: Array<string>;
};

/** No node that reaches what the waiting job has saved has lived for long: its next attempt starts without it. */
export type CheckpointAbandoned = {
  type: "CheckpointAbandoned";
  job_id: number;
  step?: number;
  storage?: string;
};

/** The program reported a checkpoint that is complete. */
export type CheckpointSaved = {
  type: "CheckpointSaved";
  job_id: number;
  attempt: number;
  step: number;
  size_bytes?: number;
  why?: string;
};

/** How the program is asked to save. `request_signal` is empty when it cannot save without stopping. */
export type CheckpointSpec = {
  stop_signal?: string;
  request_signal?: string;
  interval_ms?: number;
  shared?: boolean;
};

/** What was sent. */
export type ChunksAnswer = {
  chunks: number;
  new_bytes: number;
};

/** Why a device gets no new work. */
export type ClosureView = {
  code: string;
  reason: string;
  since_ms: number;
  by: string;
  closures: number;
  fault: boolean;
  opens_ms: number;
};

/** Everything an operator declares. A change is one event in the log. */
export type ClusterConfig = {
  pools?: Array<Pool>;
  tenants?: Array<Tenant>;
  queues?: Array<Queue>;
  settings?: Settings;
  root_policy?: string;
  reservations?: Array<Reservation>;
  candidates?: Array<"best_fit" | "dot_product" | "first_fit" | "first_fit_decreasing" | "fragmentation" | "host_load" | "random" | "worst_fit">;
  billing?: Billing;
  users?: Array<User>;
  notifications?: Notifications;
  oidc?: IdentityProvider;
};

export type ClusterView = {
  version: string;
  server: string;
  epoch: number;
  seq: number;
  nodes_ready: number;
  nodes: number;
  devices: number;
  devices_held: number;
  jobs_waiting: number;
  jobs_active: number;
  jobs_succeeded: number;
  jobs_not_succeeded: number;
  figures: Array<Figure>;
};

export type ConfigChange = {
  path: string;
  old: string;
  new: string;
  text: string;
};

/** What is declared was replaced, as a whole: at the first start, by `apply`, or by an object of the cluster. */
export type ConfigChanged = {
  type: "ConfigChanged";
  config: ClusterConfig;
  by: string;
};

/** What a change comes to. */
export type ConfigPlan = {
  base: string;
  digest: string;
  changes: Array<ConfigChange>;
  applied: boolean;
  whatif: string;
};

export type ConfigView = {
  digest: string;
  config: { [name: string]: unknown };
};

/** One thing that keeps a job from starting. `code` is stable (`reasons.py`); `text` is for people. */
export type Constraint = {
  code: string;
  text: string;
  distance?: number;
  unit?: string;
  where?: string;
};

/** Sums of the whole cluster, and of the jobs that the caller sees. */
export type Counts = {
  nodes_ready: number;
  nodes: number;
  devices: number;
  devices_held: number;
  devices_unhealthy: number;
  jobs: JobCounts;
  jobs_succeeded: number;
  jobs_not_succeeded: number;
};

/** A tenant paid in advance, or was granted something. Money in the currency's smallest unit. */
export type CreditAdded = {
  type: "CreditAdded";
  tenant: string;
  reference: string;
  amount: number;
  kind: "grant" | "payment";
  expires_ms?: number;
  by?: string;
  note?: string;
};

/** The unused remainder of a credit expired. */
export type CreditExpired = {
  type: "CreditExpired";
  tenant: string;
  reference: string;
  amount: number;
};

/** What the last cycle decided. */
export type CycleView = {
  seq: number;
  strategy: string;
  starts: number;
  preemptions: number;
  waiting: { [name: string]: number };
  reserved: Array<number>;
  candidates: Array<CandidatePlan>;
  problems: Array<string>;
  time_ms: number;
  weights: Weights | null;
  dropped: number;
  energy: string;
};

/** What moving jobs would gain: who would start, on which nodes, and who would move for it. */
export type Defrag = {
  beneficiary: number;
  nodes: Array<string>;
  moves: Array<Move>;
};

export type DefragList = {
  switched_on: boolean;
  found: Array<Defrag>;
};

/** All of the `count` jobs from `job_id` on, and how they have to end. */
export type Dependency = {
  job_id: number;
  kind: "after_any" | "after_failed" | "after_ok";
  count?: number;
};

/** One accelerator of a node; `index` is its position there and what visibility variables use. */
export type Device = {
  index: number;
  vendor: string;
  model: string;
  memory_bytes: number;
  capability?: Array<unknown>;
  numa_node?: number;
  links?: Array<DeviceLink>;
  uuid?: string;
  simulated?: boolean;
  healthy?: boolean;
  mig?: boolean;
  mig_mode?: boolean;
  isolation?: "cooperative" | "driver" | "hardware" | "none" | "watched";
  power_limit_mw?: number;
};

/** A device that was closed or opened, as it is now. */
export type DeviceAnswer = {
  node: string;
  device: DeviceView;
  note: string;
};

/** The accelerators one replica needs: `count` of them, all satisfying every other field. */
export type DeviceAsk = {
  count: number;
  vendor?: string;
  models?: Array<string>;
  memory_min_bytes?: number;
  capability_min?: Array<unknown>;
  link?: "node" | "numa" | "nvlink" | "pcie" | null;
  share_milli?: number;
  share_memory_bytes?: number;
  profile?: string;
  isolation?: "cooperative" | "driver" | "hardware" | "none" | "watched";
  oversubscribe?: boolean;
  slot?: boolean;
};

/** The node of a closed device does not report its fault any more. */
export type DeviceCleared = {
  type: "DeviceCleared";
  node: string;
  index: number;
};

/** A device gets no new work: its node found a fault, which is new or came back, or a user closed it. */
export type DeviceClosed = {
  type: "DeviceClosed";
  node: string;
  index: number;
  code: string;
  reason: string;
  by: string;
  closures?: number;
};

/** Devices by state; each is in one. */
export type DeviceCounts = {
  available: number;
  allocated: number;
  reserved: number;
  maintenance: number;
  failed: number;
};

/** The means of a device over the last hour's minutes; null where nothing was reported. */
export type DeviceCurve = {
  device: DeviceRow;
  from_ms: Array<number>;
  use_milli: Array<number | null>;
  memory_used_bytes: Array<number | null>;
  power_mw: Array<number | null>;
  temperature_c: Array<number | null>;
};

/** The MIG instances that are on a device, whether or not anything runs in them. */
export type DeviceInstances = {
  index: number;
  instances: Array<Array<unknown>>;
};

/** How a device reaches a neighbour on the same node. */
export type DeviceLink = {
  peer: number;
  kind: "node" | "numa" | "nvlink" | "pcie";
};

/** Devices by node and index, unless another order was asked for. */
export type DeviceList = {
  devices: Array<DeviceRow>;
  totals: { [name: string]: number };
  notes: { [name: string]: Array<string> };
  next_cursor: string;
  matching: number;
  groups: Array<GroupCount>;
  groups_left_out: number;
};

/** A device that was closed may be given to jobs again. */
export type DeviceOpened = {
  type: "DeviceOpened";
  node: string;
  index: number;
  by: string;
  reason?: string;
};

/** One device. Figures are null where the device, or its driver, does not report them; use is in thousandths. */
export type DeviceRow = {
  id: string;
  node: string;
  index: number;
  vendor: string;
  model: string;
  pool: string;
  state: string;
  simulated: boolean;
  job: number | null;
  reason: string;
  memory_bytes: number;
  memory_used_bytes: number | null;
  use_milli: number | null;
  temperature_c: number | null;
  power_mw: number | null;
  power_limit_mw: number | null;
  energy_mj: number | null;
  clock_mhz: number | null;
  throttled: Array<string>;
  ecc_corrected: number | null;
  ecc_uncorrected: number | null;
  link_errors: number | null;
  measured_ms: number | null;
};

/** A running attempt has its device for itself again: the job that shared it has left. */
export type DeviceShareEnded = {
  type: "DeviceShareEnded";
  job_id: number;
  attempt: number;
};

/** A running attempt holds only half of its device from now on: another job joins it there. */
export type DeviceShared = {
  type: "DeviceShared";
  job_id: number;
  attempt: number;
  pairing: Pairing;
};

/** A process on a device that Penstock did not start. */
export type DeviceUser = {
  index: number;
  pid: number;
  user?: string;
  program?: string;
};

/** A process on a device that Penstock did not start; of each program of an account one. */
export type DeviceUserView = {
  pid: number;
  user: string;
  program: string;
};

export type DeviceView = {
  index: number;
  vendor: string;
  model: string;
  memory_bytes: number;
  simulated: boolean;
  job: number | null;
  held: boolean;
  healthy: boolean;
  mig: boolean;
  isolation: string;
  promised_bytes: number;
  closed: ClosureView | null;
  taken: boolean;
  users: Array<DeviceUserView>;
  mig_mode: boolean;
  instances: Array<MigInstanceView>;
};

/** One job. */
export type Diagnosis = {
  job: number;
  state: string;
  cause: "" | "cancelled" | "communication" | "crash" | "device" | "device_memory" | "disk" | "hang" | "idle" | "import" | "killed" | "memory" | "moved" | "node" | "not_found" | "permission" | "program" | "start" | "time_limit";
  summary: string;
  evidence: Array<Evidence>;
  suggestions: Array<string>;
  left_out: number;
};

export type DoneAnswer = {
  ok: boolean;
};

/** One change with which the job would start in a cycle made now: it was planned, not reasoned. */
export type Edit = {
  kind: "cluster" | "request";
  path: string;
  old: boolean | number | string | Array<string> | null;
  new: boolean | number | string | Array<string> | null;
  text: string;
  starts_now?: boolean;
  victims?: Array<number>;
};

/** How the sizes of a pool's elastic jobs are chosen. */
export type ElasticRule = {
  mode?: "goodput" | "off" | "speedup";
  rebalance?: boolean;
  restarts_per_hour?: number;
};

/** When waiting jobs start, if no jobs are submitted that come before them. */
export type EtaList = {
  made_ms: number;
  samples: number;
  untold: number;
  jobs: Array<EtaView>;
  next_cursor: string;
  matching: number;
  groups: Array<GroupCount>;
  groups_left_out: number;
};

/** When one waiting job starts: 1, 5 and 9 of 10 starts should come before these times; 0: unknown. */
export type EtaView = {
  id: number;
  name: string;
  tenant: string;
  queue: string;
  user: string;
  submitted_ms: number;
  early_ms: number;
  likely_ms: number;
  late_ms: number;
};

/** One record that speaks for it. */
export type Evidence = {
  time_ms: number;
  seq: number;
  text: string;
};

/** How a replica ended, exactly as the kernel reported: one of `code` and `signal` is set. */
export type ExitInfo = {
  code?: number | null;
  signal?: number | null;
  stop_sent?: boolean;
  done?: boolean;
  problem?: string;
  note?: string;
  observed?: boolean;
  last_error?: string;
  measured?: Measured | null;
};

/** Why a job is not running. `code` is stable; `text` is one sentence for people. */
export type Explanation = {
  job_id: number;
  state: string;
  code: string;
  text: string;
  constraints?: Array<Constraint>;
  refused?: { [name: string]: number };
  replicas_possible?: number;
  ahead?: number;
  ahead_first?: Array<number>;
  blockers?: Array<number>;
  edits?: Array<Edit>;
  edits_note?: string;
  start_by_ms?: number;
  start_note?: string;
  start_interval_ms?: Array<unknown> | null;
  start_likely_ms?: number;
  stop?: Stop | null;
  elsewhere?: string;
};

/** A surcharge or discount (1000: none) for jobs from a priority on, or that may be preempted, at some hours. */
export type Factor = {
  milli: number;
  priority_min?: number;
  preemptible?: boolean | null;
  windows?: Array<Window>;
};

/** A counter, or measured values (durations in seconds), since the server's start. */
export type Figure = {
  name: string;
  labels: { [name: string]: string };
  count: number;
  sum: number;
  most: number;
  last: number;
};

/** What came back from the provider, and the verifier that the browser kept. */
export type FinishSignIn = {
  code: string;
  state: string;
  code_verifier: string;
};

/** What the scheduler must place, all or nothing: `replicas` times `each`, then the other groups. */
export type GangAsk = {
  replicas: number;
  each: ReplicaAsk;
  pool?: string;
  topology?: Topology | null;
  labels_wanted?: Array<Array<unknown>>;
  labels_shunned?: Array<Array<unknown>>;
  replicas_max?: number;
  others?: Array<GroupAsk>;
  placement?: string;
  label_terms?: Array<Array<LabelRule>>;
  tolerations?: Array<Toleration>;
  storage?: string | null;
};

/** Metrics reported by a program; 0 where it reports none. */
export type Gauges = {
  step_ms?: number;
  report_gap_ms?: number;
  total_steps?: number;
  samples_per_s_milli?: number;
  data_wait_milli?: number;
  communication_milli?: number;
  memory_bytes?: number;
  data_queue?: number;
  loss_not_finite?: boolean;
  batch?: BatchSeen | null;
};

/** Replicas of another shape in the same gang, such as a leader beside its workers. */
export type GroupAsk = {
  replicas: number;
  each: ReplicaAsk;
};

/** How many rows of a list have one value of what `totals_by` names. */
export type GroupCount = {
  name: string;
  count: number;
  devices: number;
};

/** Some of the replayed jobs; times in milliseconds. */
export type GroupOutcome = {
  jobs: number;
  wait_mean_ms: number;
  wait_p50_ms: number;
  wait_p95_ms: number;
  completion_p50_ms: number;
  completion_p95_ms: number;
  starts: number;
  preemptions: number;
  unfinished: number;
  device_hours: number;
  cost: string;
};

/** A running program makes no step, and this is why. */
export type HangFound = {
  type: "HangFound";
  job_id: number;
  attempt: number;
  step: number;
  ranks: Array<number>;
  text: string;
  idle_ms?: number;
};

export type Health = {
  status: string;
  version: string;
  role: string;
};

/** What one user holds of a resource for a tenant in a queue. */
export type Holder = {
  tenant: string;
  user: string;
  queue: string;
  resource: string;
  used: number;
  jobs: number;
};

/** How a node's host is really used, beside what its jobs have been given: what placement by `host_load` goes by. */
export type HostLoad = {
  cpu_milli?: number;
  memory_milli?: number;
  bandwidth_milli?: number;
  performance?: number;
};

/** The CPUs, memory or bandwidth of a node are used otherwise than noted before, or its past performance differs. */
export type HostLoadNoted = {
  type: "HostLoadNoted";
  node: string;
  load: HostLoad;
};

/** Who says who somebody is; without an issuer nobody signs in this way. */
export type IdentityProvider = {
  issuer?: string;
  client_id?: string;
  client_secret_file?: string;
  client_secret_name?: string;
  client_secret_owner?: string;
  name?: string;
  claim?: string;
  domain?: string;
  users?: Array<Array<unknown>>;
  groups_claim?: string;
  groups?: Array<string>;
  scopes?: Array<string>;
  level?: "admin" | "read" | "write";
  session_ms?: number;
  addresses?: Array<string>;
};

/** An attempt has been idle for as long as its queue allows. Said once, until it works again. */
export type IdleNoted = {
  type: "IdleNoted";
  job_id: number;
  attempt: number;
  cause: string;
  idle_ms: number;
  text?: string;
  reclaim?: boolean;
};

/** What follows when an attempt holds its places and is idle (`core/state/idleness.py`). */
export type IdleRule = {
  after_ms: number;
  reclaim?: "never" | "when_wanted";
};

/** The image that a job's replicas run in. */
export type ImageAsk = {
  name: string;
  pull?: "always" | "missing" | "never";
  runtime?: "" | "apptainer" | "bubblewrap" | "charliecloud" | "podman";
  mounts?: Array<Mount>;
  among?: Array<string>;
  folders?: Array<string>;
};

/** One file or folder that a job takes from elsewhere. */
export type Input = {
  path: string;
  url: string;
  sha256?: string;
};

/** The MIG instances on the devices of a node are others than before, or known for the first time. */
export type InstancesChanged = {
  type: "InstancesChanged";
  node: string;
  instances: Array<DeviceInstances>;
};

/** An invoice for [from_ms, until_ms), or a credit note that corrects one. Unix ms. */
export type Invoice = {
  number: string;
  kind: "credit_note" | "invoice";
  tenant: string;
  issued_ms: number;
  from_ms: number;
  until_ms: number;
  time_zone: string;
  currency: string;
  digits: number;
  lines: Array<InvoiceLine>;
  net: number;
  tax: number;
  total: number;
  from_credit?: number;
  due?: number;
  tax_name?: string;
  tax_milli?: number;
  issuer?: Party;
  customer?: Party;
  corrects?: string;
  reason?: string;
  issued_by?: string;
  granted?: number;
};

/** An invoice or a credit note, whole and for good. Of a note's total `back` goes back to payments that expire. */
export type InvoiceIssued = {
  type: "InvoiceIssued";
  invoice: Invoice;
  back?: number;
};

/** What one job cost of one resource at one price, tier and factor; negative where it is given back. */
export type InvoiceLine = {
  queue: string;
  user: string;
  job_id: number;
  job_name: string;
  resource: "cpu" | "device" | "memory";
  model: string;
  quantity_ms: number;
  micro_per_hour: number;
  tier_milli: number;
  factor_milli: number;
  full: number;
  amount: number;
  kind?: "refund" | "use";
};

/** Invoices and credit notes, newest first. */
export type InvoiceList = {
  currency: string;
  digits: number;
  invoices: Array<InvoiceView>;
  time_zone: string;
  open: Array<TenantDue>;
  left_out: number;
  next_cursor: string;
  matching: number;
  groups: Array<GroupCount>;
  groups_left_out: number;
};

/** A payment of an invoice, or of a part of it, was noted. */
export type InvoicePaid = {
  type: "InvoicePaid";
  tenant: string;
  number: string;
  reference: string;
  amount: number;
  by?: string;
};

/** An invoice or a credit note in a list. */
export type InvoiceView = {
  number: string;
  kind: "credit_note" | "invoice";
  tenant: string;
  issued_ms: number;
  from_ms: number;
  until_ms: number;
  total: number;
  due: number;
  seq: number;
  corrects: string;
  corrected: number;
  corrected_net: number;
  paid: number;
  due_issued: number;
  month: string;
  from_time: string;
  until_time: string;
  issued_time: string;
};

/** A live job is to end: at once where nothing of it runs, else after its grace. */
export type JobCancelRequested = {
  type: "JobCancelRequested";
  job_id: number;
  by: string;
  reason?: string;
};

/** New values of a live job's fields; None leaves a field as it is. Durations in milliseconds. */
export type JobChange = {
  name?: string | null;
  queue?: string | null;
  priority?: number | null;
  preemptible?: boolean | null;
  time_limit_ms?: number | null;
  max_wait_ms?: number | null;
  labels?: Array<Array<unknown>>;
  labels_removed?: Array<string>;
  ask?: GangAsk | null;
};

/** Jobs of the tenants that the caller sees. */
export type JobCounts = {
  by_state: { [name: string]: number };
  by_reason: { [name: string]: number };
};

/** Where events of one job go besides: to a destination of its user, a declared command, or a URL. */
export type JobDestination = {
  events: Array<string>;
  channel: "command" | "own" | "slack" | "webhook";
  to?: string;
  secret?: string;
  signed_by?: string;
};

/** A job that waits longer or shorter than under the rules in force; 0 where it never starts or ends. */
export type JobDifference = {
  job: number;
  name: string;
  tenant: string;
  user: string;
  wait_before_ms: number;
  wait_after_ms: number;
  ended_before_ms: number;
  ended_after_ms: number;
  preemptions_before: number;
  preemptions_after: number;
};

/** A live job's priority, queue or limits were changed. */
export type JobEdited = {
  type: "JobEdited";
  job_id: number;
  change: JobChange;
  by: string;
};

/** When a job starts; of one that has started, how right the estimates of that start were. */
export type JobEta = {
  job: number;
  state: string;
  text: string;
  now?: ToldEta | null;
  first?: ToldEta | null;
  last?: ToldEta | null;
  started_ms?: number;
  off_ms?: number;
  in_interval?: boolean | null;
};

/** The job is over for good. */
export type JobFinished = {
  type: "JobFinished";
  job_id: number;
  state: "cancelled" | "failed" | "running" | "starting" | "stopping" | "succeeded" | "suspended" | "waiting";
  reason?: string;
  exit?: ExitInfo | null;
};

/** A waiting job does not start until it is released. */
export type JobHeld = {
  type: "JobHeld";
  job_id: number;
  by: string;
};

/** Live jobs are counted in `matching`, `totals` and `groups`; finished ones are not. */
export type JobList = {
  jobs: Array<JobView>;
  next_before: number | null;
  totals: { [name: string]: number };
  next_cursor: string;
  matching: number;
  groups: Array<GroupCount>;
  groups_left_out: number;
};

/** The attempt must not be disrupted for the sake of other jobs, for `why`; empty: it may be again. */
export type JobProtected = {
  type: "JobProtected";
  job_id: number;
  why?: string;
};

export type JobRef = {
  id: number;
  name: string;
};

/** A held job may start again. */
export type JobReleased = {
  type: "JobReleased";
  job_id: number;
  by: string;
};

/** The attempt is to save and leave, and the job to wait again, held where that is asked for. */
export type JobRequeueRequested = {
  type: "JobRequeueRequested";
  job_id: number;
  attempt: number;
  by: string;
  hold?: boolean;
};

/** The job waits again: what its attempt ended with is no end of the job. */
export type JobRequeued = {
  type: "JobRequeued";
  job_id: number;
  reason: "cancelled" | "drained" | "failed" | "held" | "hung" | "lost" | "moved" | "preempted" | "requeued" | "resized" | "succeeded" | "time_limit";
  not_before_ms?: number;
  counts_as_retry?: boolean;
};

/** The program reported the step at which it resumed; `lost_steps` were done beyond that step before. */
export type JobResumed = {
  type: "JobResumed";
  job_id: number;
  attempt: number;
  step: number;
  lost_steps?: number;
};

/** Which live jobs; all given conditions must hold. With neither ids nor a condition, `all` is needed. */
export type JobSelection = {
  ids: Array<string>;
  all: boolean;
  states: Array<string>;
  name: string;
  user: string;
  tenant: string;
  queue: string;
  labels: { [name: string]: string };
};

/** One quantity of a job over time, in the order of time. */
export type JobSeries = {
  name: string;
  unit: string;
  points: Array<Point>;
  thinned: boolean;
};

/** What the log has of a job over time; a series without a point is left out. */
export type JobSeriesList = {
  id: number;
  from_ms: number;
  until_ms: number;
  total_steps: number;
  series: Array<JobSeries>;
};

/** A checked job request. Durations in milliseconds; 0 means no limit or not known. */
export type JobSpec = {
  command: Array<string>;
  ask: GangAsk;
  name?: string;
  tenant?: string;
  queue?: string;
  priority?: number;
  preemptible?: boolean;
  after?: Array<Dependency>;
  time_limit_ms?: number;
  estimated_duration_ms?: number;
  grace_ms?: number;
  max_wait_ms?: number;
  retries_max?: number;
  env?: Array<Array<unknown>>;
  workdir?: string;
  checkpoint?: CheckpointSpec;
  labels?: Array<Array<unknown>>;
  alternatives?: Array<GangAsk>;
  on_hang?: "report" | "restart";
  hang_limit_ms?: number | null;
  on_preempt?: "stop" | "suspend";
  shareable?: boolean;
  lease?: boolean;
  secrets?: Array<Array<unknown>>;
  array_parallel?: number;
  preempts?: boolean;
  notify?: Array<string>;
  notify_to?: Array<JobDestination>;
  workload_class?: "api" | "data" | "inference" | "training";
  snapshot?: string;
  runtime?: "" | "ray";
  object_store_bytes?: number;
  ports?: Array<string>;
  image?: ImageAsk | null;
  inputs?: Array<Input>;
  python?: PythonSpec | null;
  setup?: Array<string>;
  batch?: BatchAsk | null;
};

/** A request was accepted; a job of an array has an event of its own. */
export type JobSubmitted = {
  type: "JobSubmitted";
  job_id: number;
  spec: JobSpec;
  user: string;
  array_id?: number | null;
  array_index?: number;
  idempotency_key?: string;
  digest?: string;
  batch?: number;
  account?: string;
  delegated?: boolean;
  scheduled?: Scheduled | null;
};

/** A job, live or finished. */
export type JobView = {
  id: number;
  name: string;
  state: string;
  tenant: string;
  queue: string;
  user: string;
  priority: number;
  preemptible: boolean | null;
  replicas: number;
  devices: number;
  submitted_ms: number;
  started_ms: number;
  finished_ms: number;
  attempt: number;
  preemptions: number;
  nodes: Array<string>;
  reason: string;
  step: number;
  checkpoint_step: number | null;
  exit_code: number | null;
  exit_signal: number | null;
  array_id: number | null;
  array_index: number;
  command: Array<string>;
  replica_list: Array<ReplicaView>;
  ends_ms: number;
  devices_milli: number | null;
  devices_text: string;
  pool: string;
  asks: string;
  placement: string;
  time_limit_ms: number;
  start_likely_ms: number;
  energy_mj: number | null;
  power_mean_mw: number | null;
  busy_milli: number | null;
  cpu_ms: number | null;
  array_counts: { [name: string]: number };
  schedule: string;
  due_ms: number;
};

/** A bundle with which one machine may join. It holds a key, and is not shown again. */
export type JoinBundleAnswer = {
  name: string;
  bundle: string;
  valid_until_ms: number;
  servers: Array<string>;
};

export type JoinedNodeList = {
  nodes: Array<JoinedNodeView>;
  next_cursor: string;
  matching: number;
  groups: Array<GroupCount>;
  groups_left_out: number;
};

/** A declared node of another machine. */
export type JoinedNodeView = {
  name: string;
  pool: string;
  engine: string;
  at: string;
  connected: boolean;
  declared_ms: number;
  joined_ms: number;
};

/** Entries of the ledger, and the balance of each account by now; debits are positive. */
export type Journal = {
  currency: string;
  digits: number;
  entries: Array<JournalEntry>;
  balances: { [name: string]: number };
  time_zone: string;
  next_cursor: string;
  matching: number;
  groups: Array<GroupCount>;
  groups_left_out: number;
};

/** One entry of the ledger: its postings add up to zero. */
export type JournalEntry = {
  seq: number;
  time_ms: number;
  tenant: string;
  text: string;
  postings: Array<Posting>;
  time: string;
};

export type KeyRotated = {
  sealed: number;
  dropped: number;
};

/** One rule about the label `key` of a node; a label that is absent is in no set, and not a number. */
export type LabelRule = {
  key: string;
  operator: "exists" | "gt" | "in" | "lt" | "not_exists" | "not_in";
  values?: Array<string>;
};

/** A controller began its term; leases are granted anew from here. A `shadow` watches other schedulers. */
export type LeaderElected = {
  type: "LeaderElected";
  epoch: number;
  server: string;
  version?: string;
  cluster?: string;
  shadow?: boolean;
};

/** A line of an output that matches. */
export type LogLine = {
  offset: number;
  text: string;
  begin: number;
  end: number;
  cut: boolean;
};

/** Lines that match, from the end of the output backwards. */
export type LogMatches = {
  lines: Array<LogLine>;
  next_before: number;
  size_bytes: number;
  searched_bytes: number;
};

/** A code that begins one session, once. */
export type LoginLink = {
  code: string;
  path: string;
  expires_ms: number;
};

/** The remainder of one credit. */
export type Lot = {
  reference: string;
  left: number;
  kind: "grant" | "payment";
  expires_ms?: number;
  added_ms?: number;
};

/** The SMTP server that takes e-mails; without a host there are none. */
export type MailServer = {
  host?: string;
  port?: number;
  security?: "none" | "starttls" | "tls";
  sender?: string;
  user?: string;
  password_secret?: string;
  password_owner?: string;
  domains?: Array<string>;
};

/** Who calls, and what they may do. */
export type Me = {
  user: string;
  role: string;
  tenants: { [name: string]: string };
  level: string;
  submits: Array<string>;
  default_tenant: string;
  default_queue: string;
};

/** Sums over the life of a replica; None: not measured. */
export type Measured = {
  measured_ms?: number;
  busy_ms?: number | null;
  powered_ms?: number;
  energy_mj?: number | null;
  device_memory_peak_bytes?: number | null;
  devices_touched?: number | null;
  cpu_ms?: number | null;
};

/** A MIG instance of a device. */
export type MigInstanceView = {
  profile: string;
  start: number;
  held: boolean;
};

/** Whether a pool with several device models gives each job the model that suits it. */
export type ModelRule = {
  match?: boolean;
  move?: boolean;
  moves_per_hour?: number;
};

/** Devices of one model on nodes that match: `total` = `free` + `used` + `unhealthy` + `closed`. */
export type ModelTotal = {
  vendor: string;
  model: string;
  total: number;
  free: number;
  used: number;
  unhealthy: number;
  closed: number;
};

/** The part of a `UsageRow` held with devices of one model. CPUs and memory go with the replica's devices. */
export type ModelUsage = {
  model: string;
  device_milli_ms: number;
  cpu_milli_ms: number;
  memory_byte_ms: number;
  measured_milli_ms: number;
  used_milli_ms: number;
  jobs: number;
  attempts: number;
  energy_mj: number;
  powered_milli_ms: number;
};

/** It is done, or was done before. `number` is that of what was issued. */
export type MoneyAnswer = {
  number: string;
  repeated: boolean;
};

/** The credit, or payment of an invoice (`number`), of a record is taken back: all, or what a grant has left. */
export type MoneyReversed = {
  type: "MoneyReversed";
  tenant: string;
  record: number;
  reference: string;
  amount: number;
  kind?: "grant" | "payment";
  number?: string;
  expires_ms?: number;
  added_ms?: number;
  by?: string;
  reason?: string;
};

/** A folder or file of the node that a container sees. */
export type Mount = {
  source: string;
  target: string;
  read_only?: boolean;
};

/** A job that would save and resume elsewhere, and what that costs. */
export type Move = {
  job: number;
  cost_device_ms: number;
};

/** What is to hold from now on: a whole cluster file, or some changes. */
export type NewConfig = {
  config: { [name: string]: unknown } | null;
  set: Array<string>;
  add: Array<string>;
  remove: Array<string>;
  base: string;
  dry_run: boolean;
  simulate: boolean;
};

/** What a credit note takes back of an invoice. */
export type NewCorrection = {
  reason: string;
  amount: string | number | null;
};

/** What a tenant paid in advance, or is granted. */
export type NewCredit = {
  amount: string | number;
  reference: string;
  kind: "grant" | "payment";
  expires: string;
  note: string;
};

/** Whose next month is to be invoiced. */
export type NewInvoice = {
  tenant: string;
};

/** One checked entry of a submit request; dependencies may name other entries of the same request. */
export type NewJob = {
  spec: JobSpec;
  array?: number;
  after_names?: Array<Array<unknown>>;
  field?: string;
  unnamed?: Array<"queue" | "tenant">;
  array_first?: number;
  array_step?: number;
  held?: boolean;
  schedule?: ScheduleRule | null;
};

/** A node of another machine that may join: where it belongs, and the most of it that is used. */
export type NewJoinedNode = {
  name: string;
  pool: string;
  labels: { [name: string]: string };
  zone: string;
  rack: string;
  switch: string;
  cpu_milli: number;
  memory_bytes: number;
  devices: number | null;
  at: string;
  valid_hours: number;
};

/** Where a one-time link leads to. */
export type NewLink = {
  path: string;
};

/** Which events go where. */
export type NewNotification = {
  channel: string;
  events: Array<string>;
  to: string;
  tenant: string;
  signing_key: string;
};

/** What was paid for an invoice. */
export type NewPayment = {
  amount: string | number;
  reference: string;
};

/** Why a credit or a payment is taken back. */
export type NewReversal = {
  reason: string;
};

/** A value, and whose jobs may have it. */
export type NewSecret = {
  value: string;
  tenant: string;
};

/** A snapshot that jobs shall start in; without `files` it is asked whether the server has it. */
export type NewSnapshot = {
  snapshot: string;
  files?: Array<SnapshotFile>;
  base?: string;
  removed?: Array<string>;
};

/** For whom, what for, and for how long. */
export type NewToken = {
  user: string;
  level: "admin" | "read" | "write";
  tenants: Array<string>;
  days: number | null;
  note: string;
};

/** An open node was checked because of claims; if it passes, they are cleared and it is open to all tenants. */
export type NodeChecked = {
  type: "NodeChecked";
  node: string;
  passed: boolean;
  text?: string;
};

/** A node was closed to new work, or opened again. */
export type NodeDrainChanged = {
  type: "NodeDrainChanged";
  node: string;
  draining: boolean;
  by: string;
  reason?: string;
  evict_at_ms?: number;
};

/** It is known when a node will go: others have lent it for a time. */
export type NodeLeaveNoted = {
  type: "NodeLeaveNoted";
  node: string;
  leaves_ms: number;
  stays_ms?: number;
};

/** Nodes by name, unless another order was asked for. */
export type NodeList = {
  nodes: Array<NodeView>;
  totals: { [name: string]: number };
  devices: Array<ModelTotal>;
  next_cursor: string;
  matching: number;
  groups: Array<GroupCount>;
  groups_left_out: number;
};

/** The node's lease ran out: by now it has ended its own processes, so its work may start elsewhere. */
export type NodeLost = {
  type: "NodeLost";
  node: string;
  reason: string;
  heard_ms?: number;
};

/** The node showed that nothing runs there which should not. */
export type NodeReady = {
  type: "NodeReady";
  node: string;
};

/** A node's agent introduced itself. The node gets no work before `NodeReady`. */
export type NodeRegistered = {
  type: "NodeRegistered";
  spec: NodeSpec;
  incarnation: string;
};

/** A lost node is no longer listed: what had lent it is over, and no attempt has a place there. */
export type NodeRemoved = {
  type: "NodeRemoved";
  node: string;
  reason: string;
};

/** A node takes no new work of a tenant, whose jobs claimed too often that it fails. */
export type NodeShut = {
  type: "NodeShut";
  node: string;
  tenant: string;
  reason: string;
};

/** What a node says it has. `virtual` nodes share one real machine and are marked as such everywhere. */
export type NodeSpec = {
  name: string;
  capacity: Resources;
  devices?: Array<Device>;
  pool?: string;
  labels?: Array<Array<unknown>>;
  zone?: string;
  rack?: string;
  switch?: string;
  address?: string;
  port_first?: number;
  port_count?: number;
  virtual?: boolean;
  taints?: Array<Taint>;
  storage?: string;
  at?: string;
  engine?: string;
};

/** A sign that a node fails. */
export type NodeStruck = {
  type: "NodeStruck";
  node: string;
  text: string;
  job_id?: number | null;
  own?: boolean;
  tenant?: string;
  user?: string;
};

export type NodeView = {
  name: string;
  state: string;
  draining: boolean;
  drain_reason: string;
  virtual: boolean;
  pool: string;
  cpu_milli: number;
  cpu_held_milli: number;
  memory_bytes: number;
  memory_held_bytes: number;
  devices: Array<DeviceView>;
  jobs: Array<number>;
  connected: boolean;
  shut_to: Array<string>;
  labels: { [name: string]: string };
  zone: string;
  rack: string;
  switch: string;
  links: { [name: string]: Array<Array<number>> };
  host_points: string;
  at: string;
  address: string;
  leaves_ms: number;
  engine: string;
  not_promised: Array<NotPromisedView>;
};

/** Something that holds on nodes of Penstock's own agents, and not, or not in full, on this one. */
export type NotPromisedView = {
  name: string;
  text: string;
};

export type NotificationList = {
  notifications: Array<NotificationView>;
  channels: Channels;
  of_jobs: Array<NotificationView>;
};

export type NotificationMade = {
  notification: NotificationView;
  signing_key: string;
};

/** Nothing more is sent for it. */
export type NotificationRemoved = {
  type: "NotificationRemoved";
  owner: string;
  name: string;
  by?: string;
};

/** A user chose which events are sent to them, and where to; the place is sealed. */
export type NotificationSet = {
  type: "NotificationSet";
  subscription: Subscription;
};

/** The outcome of a test message. */
export type NotificationTested = {
  sent: boolean;
  error: string;
  hint: string;
};

/** A user's choice of events and of a place, and what became of its messages. Times in unix ms; 0: never. */
export type NotificationView = {
  name: string;
  owner: string;
  channel: string;
  to: string;
  events: Array<string>;
  tenant: string;
  set_ms: number;
  waiting: number;
  tries: number;
  next_try_ms: number;
  sent: number;
  given_up: number;
  last_sent_ms: number;
  last_error: string;
  last_error_ms: number;
};

/** The channels that users may choose from. */
export type Notifications = {
  server_url?: string;
  email?: MailServer;
  webhooks?: WebhookRules;
  commands?: Array<NotifyCommand>;
};

/** A program of the server's machine that gets messages as JSON on its standard input. */
export type NotifyCommand = {
  name: string;
  path: string;
  open_to?: "everyone" | "operators";
};

/** Whether people can sign in by an identity provider. */
export type OidcView = {
  available: boolean;
  name: string;
};

/** What a node gives to programs that Penstock did not place, such as pods of another scheduler. */
export type OthersLoad = {
  host?: Resources;
  devices?: Array<number>;
  selected?: Array<Array<unknown>>;
  repels?: Array<Array<unknown>>;
  users?: Array<DeviceUser>;
};

/** Programs that Penstock did not place hold another part of a node than before. */
export type OthersLoadChanged = {
  type: "OthersLoadChanged";
  node: string;
  load: OthersLoad;
};

export type OutputList = {
  outputs: Array<OutputRef>;
};

export type OutputRef = {
  attempt: number;
  rank: number;
  size_bytes: number;
};

/** An attempt holds half of its device; the job `other` holds the other half, or held it last. */
export type Pairing = {
  other: number;
  memory_bytes: number;
  step_us?: number;
  why?: string;
  since_ms?: number;
};

/** The issuer of an invoice, or the customer. */
export type Party = {
  name?: string;
  address?: Array<string>;
  tax_id?: string;
  note?: string;
};

/** What a request would lead to. Nothing was submitted. */
export type PlanAnswer = {
  now_ms: number;
  jobs: Array<PlannedJob>;
};

/** The expected course of one job of a request, if no other jobs are submitted. */
export type PlannedJob = {
  name: string;
  count: number;
  starts_now: boolean;
  places: Array<PlannedPlace>;
  preempts: Array<PlannedVictim>;
  start_p10_ms: number;
  start_p50_ms: number;
  start_p90_ms: number;
  samples: number;
  started: number;
  text: string;
  explanation: Explanation | null;
  price: Quote | null;
  device_milli_ms_max: number | null;
};

/** Where one replica would go. */
export type PlannedPlace = {
  rank: number;
  node: string;
  devices: Array<number>;
};

/** A running job that would be asked to save and leave. */
export type PlannedVictim = {
  job_id: number;
  name: string;
  rule: string;
};

/** A value from a time on (unix ms). */
export type Point = Array<unknown>;

export type Pool = {
  name: string;
  kind?: "cpu" | "gpu" | "mixed" | "npu";
  description?: string;
  placement?: "best_fit" | "dot_product" | "first_fit" | "first_fit_decreasing" | "fragmentation" | "host_load" | "random" | "worst_fit";
  backfill?: "conservative" | "easy" | "none" | "strict";
  reserve_milli?: number;
  speeds?: Array<Array<unknown>>;
  virtualization?: "any" | "mig" | "mps" | "none" | "time_slicing";
  memory_oversubscription_milli?: number;
  replicas_per_device?: number;
  power_limit_mw?: number;
  sharing?: SharingSettings;
  device_power_limit_mw?: number;
  mig_strategy?: "balanced" | "inference" | "training" | "none";
  elastic?: ElasticRule;
  models?: ModelRule;
};

export type PoolList = {
  pools: Array<PoolStats>;
  next_cursor: string;
  matching: number;
  groups: Array<GroupCount>;
  groups_left_out: number;
};

/** One pool. Devices and CPUs in thousandths; allocated, reserved, available and out add up to the total. */
export type PoolStats = {
  name: string;
  kind: string;
  virtualization: string;
  nodes: number;
  nodes_open: number;
  devices: DeviceCounts;
  total_milli: number;
  allocated_milli: number;
  reserved_milli: number;
  available_milli: number;
  out_milli: number;
  utilisation_milli: number;
  cpu_milli: number;
  cpu_held_milli: number;
  memory_bytes: number;
  memory_held_bytes: number;
  power_mw: number | null;
  power_limit_mw: number | null;
};

/** One line of a journal entry; positive: debit, negative: credit. */
export type Posting = Array<unknown>;

/** What one device, one CPU or one GiB costs for an hour (millionths of the currency), from a time on (unix ms). */
export type Price = {
  resource: "cpu" | "device" | "memory";
  micro_per_hour: number;
  from_ms?: number;
  model?: string;
};

/** One thing wrong with an input: the field, its value, and what was expected. */
export type Problem = {
  code: string;
  field: string;
  message: string;
  value?: string;
  hint?: string;
};

/** An error answer. Source: RFC 9457, with `code`, `problems` and `leader` as extensions. */
export type ProblemDetails = {
  title: string;
  status: number;
  code: string;
  detail: string;
  hint: string;
  type: string;
  problems: Array<Problem>;
  leader: string;
  now: unknown;
};

/** Metrics of a running program, noted after a significant change or after a while. */
export type ProgressNoted = {
  type: "ProgressNoted";
  job_id: number;
  attempt: number;
  step: number;
  gauges: Gauges;
};

/** A Python environment: made of requirements or of a project, or one of conda that is there. */
export type PythonSpec = {
  requirements?: Array<string>;
  file?: string;
  project?: string;
  version?: string;
  index?: string;
  conda?: string;
};

/** One queue of the tree. Its policy orders its own jobs, or its children against each other. */
export type Queue = {
  name: string;
  parent?: string;
  policy?: string;
  preemption?: "lower_priority" | "never" | "reclaim";
  weight?: number;
  guaranteed?: Array<Array<unknown>>;
  max?: Array<Array<unknown>>;
  lend?: Array<Array<unknown>> | null;
  min_runtime_ms?: number | null;
  max_waiting?: number;
  alerts?: Array<number>;
  idle?: IdleRule | null;
  elastic?: "goodput" | "off" | "speedup" | null;
};

export type QueueList = {
  queues: Array<QueueView>;
  next_cursor: string;
  matching: number;
  groups: Array<GroupCount>;
  groups_left_out: number;
};

export type QueueView = {
  name: string;
  parent: string;
  policy: string;
  preemption: string;
  waiting: number;
  blocked: number;
  active: number;
  next_jobs: Array<JobRef>;
};

/** How much of each quota is used, and who holds what of the tenants that the caller sees. */
export type QuotaList = {
  quotas: Array<QuotaRow>;
  holders: Array<Holder>;
  next_cursor: string;
  matching: number;
  groups: Array<GroupCount>;
  groups_left_out: number;
};

/** The use of a maximum of a queue (or `tenant:NAME`) has reached a percentage; amounts as quotas count them. */
export type QuotaNoted = {
  type: "QuotaNoted";
  holder: string;
  resource: string;
  percent: number;
  used: number;
  limit: number;
  text: string;
};

/** One resource of a queue or tenant. Amounts as quotas count them: thousandths of devices and CPUs, bytes, jobs. */
export type QuotaRow = {
  kind: string;
  name: string;
  parent: string;
  resource: string;
  used: number;
  guaranteed: number;
  maximum: number | null;
  borrowed: number;
  lent: number;
  percent: number;
  level: number;
  alerted: number;
  alerted_ms: number;
};

/** What one job would cost; amounts in the currency's smallest unit. */
export type Quote = {
  currency: string;
  digits: number;
  hour_low: number;
  hour_high: number;
  length_ms: number;
  total_low: number;
  total_high: number;
};

/** One replica of an attempt. */
export type RankView = {
  rank: number;
  node: string;
  devices: Array<number>;
  started_ms: number;
  ended_ms: number;
  exit: string;
};

/** One line of the log: `seq` counts from 1 without gaps, `time_ms` (unix) never goes back. */
export type Record = {
  seq: number;
  time_ms: number;
  event: LeaderElected | ConfigChanged | NodeRegistered | NodeReady | NodeLost | NodeRemoved | NodeDrainChanged | NodeStruck | OthersLoadChanged | NodeLeaveNoted | HostLoadNoted | NodeShut | NodeChecked | DeviceClosed | DeviceCleared | DeviceOpened | InstancesChanged | JobSubmitted | RunTimesPredicted | StartsEstimated | CapacityRequested | JobCancelRequested | JobHeld | JobReleased | JobProtected | JobRequeueRequested | JobEdited | AttemptAllocated | BatchChosen | ReplicaStarted | ReplicaExited | AttemptStopRequested | DeviceShared | DeviceShareEnded | ReplicaFrozen | AttemptSuspended | AttemptResumed | CheckpointSaved | CheckpointAbandoned | JobResumed | ProgressNoted | HangFound | IdleNoted | SaveSignalNoted | UseNoted | AttemptEnded | JobRequeued | JobFinished | CreditAdded | CreditExpired | UsagePosted | InvoiceIssued | InvoicePaid | MoneyReversed | TenantHeld | TenantReleased | SpendingNoted | QuotaNoted | TokenIssued | TokenRevoked | SecretSet | SecretRemoved | AccessNoted | NotificationSet | NotificationRemoved | ScheduleSet | ScheduleFired | SchedulePaused | ScheduleResumed | ScheduleRemoved;
};

/** What one replica needs on its node. */
export type ReplicaAsk = {
  host: Resources;
  devices?: DeviceAsk | null;
  selected?: Array<string>;
  affinity?: Array<AffinityRule>;
  label_terms?: Array<Array<LabelRule>>;
  tolerations?: Array<Toleration>;
  claimed?: Array<Array<unknown>>;
};

/** A replica ended and no process of it is left. */
export type ReplicaExited = {
  type: "ReplicaExited";
  job_id: number;
  attempt: number;
  rank: number;
  exit: ExitInfo;
};

/** The processes of a replica get no processor time any more; they keep their memory. */
export type ReplicaFrozen = {
  type: "ReplicaFrozen";
  job_id: number;
  attempt: number;
  rank: number;
};

/** Where one replica of a plan goes: a node (in one incarnation) and device indexes there. */
export type ReplicaPlace = {
  node: string;
  incarnation: string;
  devices?: Array<number>;
  slots?: Array<number>;
};

/** The node's agent started a replica's program. */
export type ReplicaStarted = {
  type: "ReplicaStarted";
  job_id: number;
  attempt: number;
  rank: number;
  pid?: number;
};

export type ReplicaView = {
  rank: number;
  node: string;
  devices: Array<number>;
  state: string;
  exit: string;
  ports: { [name: string]: string };
};

/** The curve of one attempt, in the order in which it was reported; all lists have one entry a point. */
export type ReportedLine = {
  attempt: number;
  steps: Array<number>;
  times_ms: Array<number>;
  values: Array<number | null>;
  not_finite: Array<number>;
};

/** What one rank of a job has reported: `loss` first, then by when the latest attempt first reported it. */
export type ReportedList = {
  id: number;
  rank: number;
  ranks: Array<number>;
  attempts: Array<number>;
  metrics: Array<ReportedMetric>;
  size_bytes: number;
  read_bytes: number;
  attempts_left_out: number;
  metrics_left_out: boolean;
};

/** A number that a job's programs report, over its attempts in order: at most 500 points together. */
export type ReportedMetric = {
  name: string;
  lines: Array<ReportedLine>;
  last: number | null;
  lowest: number | null;
  highest: number | null;
};

/** Whole nodes of a pool kept from `start_ms` to `end_ms` for jobs of one tenant (all jobs of it, any queue). */
export type Reservation = {
  name: string;
  tenant: string;
  start_ms: number;
  end_ms: number;
  nodes: Array<string>;
};

/** CPU (thousandths of a core), memory and storage (bytes), network bandwidth (bits a second), and further ones. */
export type Resources = {
  cpu_milli?: number;
  memory_bytes?: number;
  storage_bytes?: number;
  bandwidth_bps?: number;
  extended?: Array<Array<unknown>>;
};

/** Where a job is to start next, by rank, and with that at which size. */
export type Room = {
  job_id: number;
  places: Array<ReplicaPlace>;
};

/** Predicted run times of attempts of these live jobs. */
export type RunTimesPredicted = {
  type: "RunTimesPredicted";
  times: Array<Array<unknown>>;
};

/** One run of a schedule: its jobs have the numbers from `first` on. */
export type RunView = {
  due_ms: number;
  first: number;
  count: number;
  live: number;
  by: string;
};

/** A running program said which signal makes it save a checkpoint and carry on; empty: none any more. */
export type SaveSignalNoted = {
  type: "SaveSignalNoted";
  job_id: number;
  attempt: number;
  signal: string;
};

/** What is submitted, when, and for whom. Times in unix ms. */
export type Schedule = {
  name: string;
  owner: string;
  rule: ScheduleRule;
  jobs: Array<NewJob>;
  tenant: string;
  operator?: boolean;
  set_ms?: number;
  next_ms?: number;
  paused?: boolean;
  paused_by?: string;
  paused_why?: string;
  runs?: Array<ScheduledRun>;
  run_total?: number;
  skipped_total?: number;
  skipped?: string;
  skipped_ms?: number;
};

export type ScheduleActionRequest = {
  action: "pause" | "resume" | "run";
};

/** A schedule was due, or a user asked for a run: its jobs were submitted, or it is said why not. */
export type ScheduleFired = {
  type: "ScheduleFired";
  tenant: string;
  owner: string;
  name: string;
  due_ms: number;
  next_ms?: number;
  first?: number;
  count?: number;
  skipped?: string;
  missed?: number;
  by?: string;
};

export type ScheduleList = {
  schedules: Array<ScheduleView>;
};

/** A schedule is not due until it is resumed. */
export type SchedulePaused = {
  type: "SchedulePaused";
  tenant: string;
  owner: string;
  name: string;
  by: string;
  reason?: string;
};

/** A schedule is gone; jobs that it submitted stay. */
export type ScheduleRemoved = {
  type: "ScheduleRemoved";
  tenant: string;
  owner: string;
  name: string;
  by: string;
};

/** A schedule is due again; times in between are passed over. */
export type ScheduleResumed = {
  type: "ScheduleResumed";
  tenant: string;
  owner: string;
  name: string;
  by: string;
  next_ms?: number;
};

/** A checked `schedule`. Times in unix ms; 0: no bound. */
export type ScheduleRule = {
  cron: string;
  zone?: string;
  name?: string;
  catch_up?: "all" | "last" | "none";
  overlap?: "allow" | "queue" | "skip";
  start_ms?: number;
  end_ms?: number;
  paused?: boolean;
};

/** A user set a schedule, or changed it: its runs and counts go on. */
export type ScheduleSet = {
  type: "ScheduleSet";
  schedule: Schedule;
};

/** A schedule: what it submits, when, and what became of it. */
export type ScheduleView = {
  name: string;
  owner: string;
  tenant: string;
  cron: string;
  zone: string;
  catch_up: string;
  overlap: string;
  start_ms: number;
  end_ms: number;
  paused: boolean;
  paused_by: string;
  paused_why: string;
  set_ms: number;
  next_ms: number;
  next_local: string;
  live_runs: number;
  run_total: number;
  skipped_total: number;
  skipped: string;
  skipped_ms: number;
  jobs: number;
  job_names: Array<string>;
  coming: Array<string>;
  runs: Array<RunView>;
};

/** The run that a job belongs to: of this schedule of its user, with jobs from `first` on. */
export type Scheduled = {
  schedule: string;
  due_ms: number;
  first: number;
};

/** One run: its jobs have the numbers from `first` on. */
export type ScheduledRun = {
  due_ms: number;
  first: number;
  count: number;
  by?: string;
};

/** How right estimates were. 1, 4, 4 and 1 of 10 starts should be in the four parts. */
export type Score = {
  overall: Bucket;
  buckets: Array<Bucket>;
  open: number;
};

/** How good a plan is at each objective, 0 to 1000. Raises ValueError for a value out of range. */
export type Scores = {
  utilisation: number;
  response_time: number;
  fairness: number;
  energy: number;
  cost: number;
};

/** A value for jobs as an environment variable; it cannot be read from the log. */
export type Secret = {
  name: string;
  tenant?: string;
  owner?: string;
  key_id?: string;
  sealed?: string;
  set_ms?: number;
  by?: string;
};

export type SecretList = {
  secrets: Array<SecretView>;
  next_cursor: string;
  matching: number;
  groups: Array<GroupCount>;
  groups_left_out: number;
};

/** A secret that no live job needs is gone. */
export type SecretRemoved = {
  type: "SecretRemoved";
  tenant: string;
  owner: string;
  name: string;
  by?: string;
};

/** A value for jobs, sealed: it cannot be read from the log. */
export type SecretSet = {
  type: "SecretSet";
  secret: Secret;
};

/** A secret without its value, which only programs of jobs that ask for it get. */
export type SecretView = {
  name: string;
  tenant: string;
  owner: string;
  set_ms: number;
  by: string;
};

/** Series over [from_ms, from_ms + points * step_ms). */
export type SeriesList = {
  from_ms: number;
  step_ms: number;
  points: number;
  series: Array<SeriesView>;
  left_out: number;
  seq: number;
  complete: boolean;
  since_ms: number;
};

/** One course over time, a point for each step; None where nothing is known, and ahead. */
export type SeriesView = {
  name: string;
  unit: string;
  values: Array<number | null>;
  lowest?: Array<number | null>;
  highest?: Array<number | null>;
  labels?: { [name: string]: string };
};

/** A session that has begun. */
export type SessionView = {
  token: string;
  user: string;
  expires_ms: number;
  path: string;
};

/** Numbers of the scheduler and of the protocol with the nodes; durations in milliseconds. */
export type Settings = {
  wait_bonus_max?: number;
  wait_bonus_horizon_ms?: number;
  size_penalty_per_device?: number;
  min_runtime_before_preemption_ms?: number;
  starvation_after_ms?: number;
  starvation_ratio?: number;
  ageing_ms?: number;
  predict_run_times?: boolean;
  estimate_starts_every_ms?: number;
  lease_ttl_ms?: number;
  lease_margin_ms?: number;
  heartbeat_ms?: number;
  grace_default_ms?: number;
  restart_cost_ms?: number;
  checkpoint_cost_ms?: number;
  priority_cost_ms_per_point?: number;
  victim_sets_tried_max?: number;
  infrastructure_retries_max?: number;
  node_strikes_max?: number;
  node_strikes_window_ms?: number;
  device_open_after_ms?: number;
  mig_divide_after_ms?: number;
  node_check?: string;
  preparing_limit_ms?: number;
  environments_kept_gib?: number;
  scale_command?: string;
  scale_url?: string;
  scale_after_ms?: number;
  scale_every_ms?: number;
  same_failures_max?: number;
  backoff_first_ms?: number;
  backoff_max_ms?: number;
  starts_per_cycle_max?: number;
  fair_share_half_life_ms?: number;
  least_attained_step_device_ms?: number;
  least_attained_turn_milli?: number;
  admission_milli?: number;
  backfill_depth_max?: number;
  elastic_growth_period_ms?: number;
  suspended_max_ms?: number;
  elastic_data_wait_max_milli?: number;
  elastic_shrink_idle?: boolean;
  defrag?: boolean;
  defrag_gain_milli?: number;
  preemptive_utilisation_milli?: number;
  immediate_utilisation_milli?: number;
  predictive_waiting_min?: number;
  predictive_share_milli?: number;
  predictive_ahead_ms?: number;
  predictive_confidence_milli?: number;
  predictive_gain_milli?: number;
  critical_priority?: number;
  batching_window_ms?: number;
  objective_utilisation_milli?: number;
  objective_response_time_milli?: number;
  objective_fairness_milli?: number;
  objective_energy_milli?: number;
  objective_cost_milli?: number;
  holders_shown?: "own" | "tenants" | "users";
  default_tenant?: string;
  default_queue?: string;
  job_account?: string;
  allow_waiting_for_nodes?: boolean;
  container_runtimes?: string;
  container_mounts?: string;
  agent_servers?: string;
  input_protocols?: string;
  input_hosts?: string;
  input_max_bytes?: number;
  inputs_kept_bytes?: number;
  inputs_kept_ms?: number;
};

/** When jobs share a device and when no longer. Raises ValueError for a value out of range. */
export type SharingSettings = {
  use_below_milli?: number;
  window_ms?: number;
  memory_margin_milli?: number;
  across_tenants?: boolean;
  slowdown_milli?: number;
  steps?: number;
  cool_down_ms?: number;
  jobs_max?: number;
  exact_jobs_max?: number;
  use_above_milli?: number;
  enabled?: boolean;
};

/** A sign-in at the identity provider that has begun: the browser keeps the verifier, and goes to the URL. */
export type SignInBegun = {
  url: string;
  state: string;
  code_verifier: string;
  expires_ms: number;
};

/** What the server has of a snapshot. */
export type SnapshotAnswer = {
  snapshot: string;
  complete: boolean;
  files_known: boolean;
  missing: Array<string>;
};

/** One file of a snapshot; `path` is relative to the folder, with `/` between its parts. */
export type SnapshotFile = Array<unknown>;

export type SnapshotList = {
  snapshots: Array<SnapshotView>;
  next_cursor: string;
  matching: number;
  groups: Array<GroupCount>;
  groups_left_out: number;
};

/** A snapshot that the server keeps for the caller. */
export type SnapshotView = {
  name: string;
  files: number;
  bytes: number;
  used_ms: number;
  jobs: number;
};

/** A notice about a tenant's spending. Each is given once. */
export type SpendingNoted = {
  type: "SpendingNoted";
  tenant: string;
  kind: "balance" | "budget" | "quota" | "unusual";
  name: string;
  period_ms: number;
  percent: number;
  text: string;
};

/** When one waiting job starts. */
export type StartEstimate = {
  job_id: number;
  given: Array<unknown>;
  sampled: Array<unknown>;
};

/** Published estimates of when these waiting jobs start; no decision depends on them. */
export type StartsEstimated = {
  type: "StartsEstimated";
  made_ms: number;
  estimates: Array<StartEstimate>;
};

/** Why a running job was asked to stop. */
export type Stop = {
  reason: string;
  rule?: string;
  beneficiary?: number | null;
  cost_device_ms?: number;
  grace_left_ms?: number;
};

/** The jobs that a submit made; `repeated` when the same request had made them before. */
export type SubmitAnswer = {
  jobs: Array<JobRef>;
  repeated: boolean;
  warnings: Array<string>;
};

/** A user's choice: these events, to this place. Where it goes is sealed: the address of a webhook is a secret. */
export type Subscription = {
  name: string;
  owner: string;
  channel: "command" | "email" | "slack" | "webhook";
  events: Array<string>;
  to: Secret;
  shown: string;
  tenant?: string;
  set_ms?: number;
  after?: number;
};

/** Keeps replicas off a node that do not tolerate it. */
export type Taint = {
  key: string;
  value?: string;
  effect?: "NoExecute" | "NoSchedule";
};

/** All that a charge follows from. A resource without a price is free of charge. */
export type Tariff = {
  prices?: Array<Price>;
  tiers?: Array<Array<unknown>>;
  tier_reading?: "marginal" | "whole";
  factors?: Array<Factor>;
  minimum_ms?: number;
  later?: Array<Terms>;
};

export type Tenant = {
  name: string;
  description?: string;
  max?: Array<Array<unknown>>;
  device_hours_max?: number;
  budgets?: Array<Budget>;
  credit_limit?: number;
  at_zero?: "nothing" | "stop_starts" | "suspend" | "warn" | null;
  bill_to?: Party;
  alerts?: Array<number>;
};

/** What a tenant still has to pay on its invoices. */
export type TenantDue = {
  tenant: string;
  due: number;
  invoices: number;
};

/** Nothing of the tenant starts from here on: its credit or a hard budget is used up. */
export type TenantHeld = {
  type: "TenantHeld";
  tenant: string;
  reason: string;
  text: string;
  suspend?: boolean;
};

/** What held the tenant is over: its jobs start again. */
export type TenantReleased = {
  type: "TenantReleased";
  tenant: string;
};

/** What prices are multiplied with, from a time on (unix ms). */
export type Terms = {
  from_ms?: number;
  tiers?: Array<Array<unknown>>;
  tier_reading?: "marginal" | "whole";
  factors?: Array<Factor>;
  minimum_ms?: number;
};

export type TimelineRow = {
  key: string;
  bars: number;
  devices?: number;
  density?: Array<number>;
};

/** Allocations that overlap [from_ms, until_ms): the window that was asked for, widened to a grid. */
export type TimelineView = {
  from_ms: number;
  until_ms: number;
  by: string;
  rows: Array<TimelineRow>;
  bars: Array<AllocationView>;
  merged: boolean;
  bars_total: number;
  next_cursor: string;
  seq: number;
  complete: boolean;
  since_ms: number;
};

/** A token as the server knows it: by its hash. */
export type Token = {
  id: string;
  sha256: string;
  user: string;
  level?: "admin" | "read" | "write";
  tenants?: Array<string>;
  created_ms?: number;
  expires_ms?: number;
  by?: string;
  note?: string;
  delegated?: boolean;
};

/** A token that acts for a user; its secret was shown once and is not stored. */
export type TokenIssued = {
  type: "TokenIssued";
  token: Token;
};

export type TokenList = {
  tokens: Array<TokenView>;
  next_cursor: string;
  matching: number;
  groups: Array<GroupCount>;
  groups_left_out: number;
};

export type TokenMade = {
  id: string;
  token: string;
  expires_ms: number;
};

/** The token is refused from here on. */
export type TokenRevoked = {
  type: "TokenRevoked";
  token_id: string;
  by?: string;
};

export type TokenView = {
  id: string;
  user: string;
  level: string;
  tenants: Array<string>;
  created_ms: number;
  expires_ms: number;
  by: string;
  note: string;
  delegated: boolean;
};

/** An estimate of a start: 1, 5 and 9 of 10 starts should come before these times (unix ms; 0: unknown). */
export type ToldEta = {
  made_ms: number;
  early_ms: number;
  likely_ms: number;
  late_ms: number;
};

/** Taints that a gang may stand on. */
export type Toleration = {
  key?: string;
  value?: string | null;
  effect?: string;
};

/** Where replicas may stand to each other: all on one node/switch/rack, or each on a node of its own. */
export type Topology = {
  scope: "node" | "rack" | "spread" | "switch";
  required?: boolean;
};

/** Jobs that an action left as they were, for one reason. */
export type Unchanged = {
  code: string;
  text: string;
  count: number;
  jobs: Array<number>;
};

/** What was held from one time to another (unix ms), recomputed from the log. */
export type UsageList = {
  from_ms: number;
  until_ms: number;
  rows: Array<UsageRow>;
  next_cursor: string;
  matching: number;
  groups: Array<GroupCount>;
  groups_left_out: number;
};

/** Cost of a tenant's use since the last posting of this month, up to `until_ms`; negative: a refund. */
export type UsagePosted = {
  type: "UsagePosted";
  tenant: string;
  month_ms: number;
  until_ms: number;
  amount: number;
  back?: number;
};

/** Sums of held capacity over a span. Device time in thousandths of device-milliseconds. */
export type UsageRow = {
  tenant: string;
  user: string;
  queue: string;
  pool: string;
  job: number;
  node: string;
  device_milli_ms: number;
  by_model: { [name: string]: number };
  cpu_milli_ms: number;
  memory_byte_ms: number;
  measured_milli_ms: number;
  used_milli_ms: number;
  jobs: number;
  attempts: number;
  energy_mj: number;
  powered_milli_ms: number;
  models: Array<ModelUsage>;
};

/** What the nodes of an attempt measured of its devices lately. */
export type UseNoted = {
  type: "UseNoted";
  job_id: number;
  attempt: number;
  covered_ms: number;
  busy_milli: number;
  untouched?: number;
  memory_peak_bytes?: number;
  steps?: number;
  step_us?: number;
};

export type UsedCode = {
  code: string;
  dry_run: boolean;
};

/** A user, as an operator declares it. */
export type User = {
  name: string;
  role?: "" | "admin" | "operator" | "viewer";
  tenants?: Array<Array<unknown>>;
  disabled?: boolean;
  description?: string;
  account?: string;
  default_tenant?: string;
  default_queue?: string;
};

/** A time of waiting, [from_ms, until_ms); until_ms is 0 where it still waits. */
export type Wait = {
  from_ms: number;
  until_ms: number;
};

/** What was held in [from_ms, until_ms) and how much of it was used, idle or not known, recomputed from the log. */
export type WasteList = {
  from_ms: number;
  until_ms: number;
  currency: string;
  digits: number;
  priced: boolean;
  rows: Array<WasteRow>;
  next_cursor: string;
  matching: number;
  groups: Array<GroupCount>;
  groups_left_out: number;
};

/** Sums over a span. Device time in thousandths of device-milliseconds, money in the currency's smallest unit. */
export type WasteRow = {
  tenant: string;
  user: string;
  queue: string;
  pool: string;
  job: number;
  node: string;
  device_milli_ms: number;
  used_milli_ms: number;
  data_milli_ms: number;
  hang_milli_ms: number;
  unused_milli_ms: number;
  unknown_milli_ms: number;
  cost: number;
  used_cost: number;
  data_cost: number;
  hang_cost: number;
  unused_cost: number;
  unknown_cost: number;
  not_held_cost: number;
};

/** Where webhooks may go; nowhere by default. */
export type WebhookRules = {
  hosts?: Array<string>;
  internal?: Array<string>;
};

/** What each objective counts, in thousandths. Raises ValueError unless they are 0 or more and sum to 1000. */
export type Weights = {
  utilisation: number;
  response_time: number;
  fairness: number;
  energy: number;
  cost: number;
};

/** What is to be tried on the jobs of the log. */
export type WhatIfAsked = {
  set?: Array<string>;
  policies?: Array<string>;
  nodes?: string;
  since?: string;
};

/** What a change of the rules comes to. */
export type WhatIfChange = {
  outcome: WhatIfOutcome;
  sooner: number;
  later: number;
  most_affected: Array<JobDifference>;
};

/** The newest first, without their results. */
export type WhatIfList = {
  whatifs: Array<WhatIfView>;
};

/** One replay. */
export type WhatIfOutcome = {
  name: string;
  whole: GroupOutcome;
  by_tenant: { [name: string]: GroupOutcome };
  utilisation: number;
  makespan_ms: number;
};

/** The replay of the jobs of a log, submitted in [from_ms, until_ms] (unix ms). */
export type WhatIfResult = {
  type: "WhatIfResult";
  from_ms: number;
  until_ms: number;
  jobs: number;
  currency: string;
  waited_p50_ms: number;
  waited_p95_ms: number;
  before: WhatIfOutcome;
  after: Array<WhatIfChange>;
  notes: Array<string>;
};

/** One entry of `result.after` as a change of the configuration. */
export type WhatIfRules = {
  name: string;
  set: Array<string>;
  changes: Array<string>;
};

/** A what-if, and what it has come to; kept for an hour. */
export type WhatIfView = {
  id: string;
  state: "cancelled" | "done" | "failed" | "queued" | "running";
  progress: number;
  user: string;
  created_ms: number;
  ended_ms: number;
  asked: WhatIfAsked;
  base: string;
  rules: Array<WhatIfRules>;
  problem: string;
  result: WhatIfResult | null;
};

/** Hours of the local day, [from_minute, until_minute), on some days of the week (0: Monday). */
export type Window = {
  from_minute: number;
  until_minute: number;
  days: Array<number>;
};

