"""The keys of Slurm's files: their spelling, and for keys without a meaning in Penstock the reason.

Source: https://slurm.schedmd.com/slurm.conf.html (22.05 to 25.05), gres.conf.html, topology.conf.html.
"""

from collections.abc import Iterable

from penstock.migrate.slurm.lines import Keys

DAEMONS = "how Slurm's daemons run; Penstock has its own"
ACCOUNTS = "where Slurm keeps its accounts; Penstock's log is its own"
SECURITY = "how Slurm's parts know each other; Penstock has its own tokens"
HOOKS = "a program that Slurm starts; Penstock starts none"
POWER = "Penstock switches no nodes on or off"
STEPS = "how Slurm starts the steps of a job; Penstock starts replicas directly"
LIMITS = "a limit or default per job; Penstock has none: jobs say what they need"
COLLECT = "how Slurm measures jobs; Penstock has its own accounting"
OLD = "of an old version of Slurm, without meaning now"

_WHY: dict[str, str] = {
    DAEMONS: "BackupAddr BackupController ControlAddr ControlMachine ClusterName CommunicationParameters DebugFlags"
    " EioTimeout FederationParameters FirstJobId GetEnvTimeout GroupUpdateForce GroupUpdateTime InactiveLimit"
    " KeepAliveTime LogTimeFormat MailDomain MaxDBDMsgs MaxJobId MaxNodeCount MessageTimeout MinJobAge PluginDir"
    " PlugStackConfig PrivateData ReconfigFlags ReturnToService RoutePlugin SchedulerAuth SlurmctldAddr SlurmctldDebug"
    " SlurmctldHost SlurmctldLogFile SlurmctldParameters SlurmctldPidFile SlurmctldPlugstack SlurmctldPort"
    " SlurmctldSyslogDebug SlurmctldTimeout SlurmdDebug SlurmdLogFile SlurmdParameters SlurmdPidFile SlurmdPort"
    " SlurmdSpoolDir SlurmdSyslogDebug SlurmdTimeout SlurmdUser SlurmSchedLogFile SlurmSchedLogLevel SlurmUser"
    " StateSaveLocation TCPTimeout TmpFS TreeWidth MetricsType MetricsParameters HttpParserType UrlParserType"
    " MetricsAuthUsers DataParserParameters PMIxServer CgroupPlugin SlurmctldHttpAuthParameters"
    " SlurmdHttpAuthParameters",
    ACCOUNTS: "AccountingStorageTRES AccountingStorageExternalHost AccountingStorageHost"
    " AccountingStorageBackupHost AccountingStorageLoc AccountingStorageParameters AccountingStoragePass"
    " AccountingStoragePort AccountingStorageType AccountingStorageUser AccountingStoreFlags AccountingStoreJobComment"
    " JobCompHost JobCompLoc JobCompParams JobCompPass JobCompPassScript JobCompPort JobCompType JobCompUser"
    " TrackWCKey",
    SECURITY: "AuthAltTypes AuthAltParameters AuthInfo AuthType CredType CryptoType JobCredentialPrivateKey"
    " JobCredentialPublicCertificate HashPlugin TLSParameters TLSType CertgenParameters CertgenType CertmgrParameters"
    " CertmgrType MCSParameters MCSPlugin UsePAM DisableRootJobs",
    HOOKS: "BcastExclude BcastParameters BurstBufferParameters BurstBufferType CliFilterPlugins CliFilterParameters"
    " Epilog EpilogMsgTime EpilogSlurmctld EpilogTimeout HealthCheckInterval HealthCheckNodeState HealthCheckProgram"
    " HealthCheckTimeout JobSubmitPlugins MailProg PrEpParameters PrEpPlugins Prolog PrologEpilogTimeout PrologFlags"
    " PrologSlurmctld PrologTimeout RebootProgram ResvEpilog ResvProlog SlurmctldPrimaryOffProg SlurmctldPrimaryOnProg"
    " SrunEpilog SrunProlog TaskEpilog TaskProlog UnkillableStepProgram UnkillableStepTimeout NodeFeaturesPlugins"
    " PrioritySiteFactorParameters PrioritySiteFactorPlugin",
    POWER: "PowerParameters PowerPlugin ResumeFailProgram ResumeProgram ResumeRate ResumeTimeout SuspendExcNodes"
    " SuspendExcParts SuspendExcStates SuspendProgram SuspendRate SuspendTime SuspendTimeout",
    STEPS: "AllowSpecResourcesUsage BatchStartTimeout CompleteWait CoreSpecPlugin CpuFreqDef CpuFreqGovernors"
    " GpuFreqDef InteractiveStepOptions JobContainerType JobContainerPlugin NamespaceType JobFileAppend KillOnBadExit"
    " LaunchParameters LaunchType MpiDefault MpiParams ProctrackType PropagatePrioProcess PropagateResourceLimits"
    " PropagateResourceLimitsExcept RequeueExit RequeueExitHold SallocDefaultCommand SbcastParameters ScronParameters"
    " SrunPortRange SwitchParameters SwitchType TaskPlugin TaskPluginParam VSizeFactor WaitTime X11Parameters"
    " DependencyParameters",
    LIMITS: "DefCpuPerGPU DefMemPerCPU DefMemPerGPU DefMemPerNode EnforcePartLimits MaxArraySize MaxBatchRequeue"
    " MaxMemPerCPU MaxMemPerNode MaxStepCount MaxTasksPerNode OverTimeLimit Licenses LicenseParameters ResvOverRun",
    COLLECT: "AcctGatherEnergyType AcctGatherFilesystemType AcctGatherInfinibandType AcctGatherInterconnectType"
    " AcctGatherNodeFreq AcctGatherProfileType ExtSensorsFreq ExtSensorsType JobAcctGatherFrequency"
    " JobAcctGatherParams JobAcctGatherType",
    OLD: "FastSchedule CheckpointType SchedulerPort SchedulerRootFilter ChosLoc MemLimitEnforce PriorityUsageWeight",
}
IGNORED: dict[str, str] = {key: why for why, keys in _WHY.items() for key in keys.split()}
"""Keys of slurm.conf that are not mapped, with the reason."""

SCHEDULING = (
    "AccountingStorageEnforce FairShareDampeningFactor GresTypes JobRequeue KillWait MaxJobCount PreemptExemptTime"
    " PreemptMode PreemptParameters PreemptType PriorityCalcPeriod PriorityDecayHalfLife PriorityFavorSmall"
    " PriorityFlags PriorityMaxAge PriorityParameters PriorityType PriorityUsageResetPeriod PriorityWeightAge"
    " PriorityWeightAssoc PriorityWeightFairshare PriorityWeightJobSize PriorityWeightPartition PriorityWeightQOS"
    " PriorityWeightTRES SchedulerParameters SchedulerTimeSlice SchedulerType SelectType SelectTypeParameters"
    " TopologyParam TopologyPlugin"
)
"""Keys of slurm.conf that `settings` reads."""

NODE = (
    "NodeName BcastAddr Boards CoreSpecCount CoresPerSocket CPUs CPUSpecList CpuBind Feature Features Gres MemSpecLimit"
    " NodeAddr NodeHostname Port Procs RealMemory Reason RestrictedCoresPerGPU Sockets SocketsPerBoard State"
    " ThreadsPerCore TmpDisk TRESWeights Weight Parameters Topology AutoResume GresConf SuspendTime"
)
PARTITION = (
    "PartitionName AllocNodes AllowAccounts AllowGroups AllowQos Alternate CpuBind Default DefaultTime DefCpuPerGPU"
    " DefMemPerCPU DefMemPerGPU DefMemPerNode DenyAccounts DenyQos DisableRootJobs ExclusiveTopo ExclusiveUser"
    " Exclusive GraceTime Hidden LLN MaxCPUsPerNode MaxCPUsPerSocket MaxMemPerCPU MaxMemPerNode MaxNodes MaxTime"
    " MinNodes Nodes OverSubscribe OverTimeLimit PowerDownOnIdle PreemptMode Priority PriorityJobFactor PriorityTier"
    " QOS ReqResv ResumeTimeout RootOnly SelectTypeParameters Shared State SuspendTime SuspendTimeout Topology"
    " TRESBillingWeights"
)
FRONTEND = "FrontendName AllowGroups AllowUsers DenyGroups DenyUsers FrontendAddr Port Reason State"
GRES = "NodeName Name Type File MultipleFiles Count Cores CPUs Links Flags AutoDetect"


def _spelling(keys: str | Iterable[str]) -> dict[str, str]:
    words = keys.split() if isinstance(keys, str) else keys
    return {key.lower(): key for key in words}


SLURM_KEYS: Keys = {
    "": {**_spelling(IGNORED), **_spelling(SCHEDULING)},
    "nodename": _spelling(NODE),
    "nodeset": _spelling("NodeSet Feature Nodes"),
    "partitionname": _spelling(PARTITION),
    "downnodes": _spelling("DownNodes Reason State"),
    "frontendname": _spelling(
        "FrontendName AllowGroups AllowUsers DenyGroups DenyUsers FrontendAddr Port Reason State"
    ),
    "slurmctldhost": _spelling("SlurmctldHost"),
}
GRES_KEYS: Keys = {"nodename": _spelling(GRES), "name": _spelling(GRES), "autodetect": _spelling(GRES)}
TOPOLOGY_KEYS: Keys = {
    "switchname": _spelling("SwitchName Switches Nodes LinkSpeed"),
    "blockname": _spelling("BlockName Nodes"),
    "blocksizes": _spelling("BlockSizes"),
}
