"""The keys of Slurm's files: their spelling, and for keys without a meaning in Penstock the reason.

Source: https://slurm.schedmd.com/slurm.conf.html (22.05 to 25.05), gres.conf.html, topology.conf.html.
"""

from collections.abc import Iterable

from penstock.migrate.slurm import gres, nodes, partitions
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


def _spelling(keys: Iterable[str]) -> dict[str, str]:
    """Return keys by their lower case."""
    return {key.lower(): key for key in keys}


def _words(keys: str) -> dict[str, str]:
    return _spelling(keys.split())


SLURM_KEYS: Keys = {
    "": {**_spelling(IGNORED), **_words(SCHEDULING)},
    "nodename": _spelling(nodes.KEYS),
    "nodeset": _words("NodeSet Feature Nodes"),
    "partitionname": _spelling(partitions.KEYS),
    "downnodes": _words("DownNodes Reason State"),
    "frontendname": _words("FrontendName AllowGroups AllowUsers DenyGroups DenyUsers FrontendAddr Port Reason State"),
    "slurmctldhost": _words("SlurmctldHost"),
}
GRES_KEYS: Keys = dict.fromkeys(("nodename", "name", "autodetect"), _spelling(gres.KEYS))
TOPOLOGY_KEYS: Keys = {
    "switchname": _words("SwitchName Switches Nodes LinkSpeed"),
    "blockname": _words("BlockName Nodes"),
    "blocksizes": _words("BlockSizes"),
}
