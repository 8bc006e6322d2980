"""The script that an attempt of a job is in Slurm: plain `sh`, for a node need not have Penstock.

It claims its attempt by making a folder, which only one can do: whatever is submitted twice, or put back by Slurm, runs
once. What happens is said by files whose names say all of it (`spool.py`). A stop comes as a signal, or by a file that
it looks for, since signals get lost with a `slurmstepd` that was killed.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence

from penstock.core.messages.orders import StartReplica
from penstock.core.model.ids import JobId, Rank

CLAIMED_CODE = 75
"""Another job has the attempt already."""
NOT_SHARED_CODE = 74
"""The shared folder is not there on the node."""
NEVER_RAN_CODE = 126
LOOK_S = 5
"""It shows that it lives, and looks for stops, this often."""
_UNSET = (
    "SLURM_NTASKS SLURM_NPROCS SLURM_NTASKS_PER_NODE SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_GTIDS SLURM_STEP_ID "
    "SLURM_STEPID SLURM_STEP_NUM_TASKS SLURM_STEP_NUM_NODES SLURM_STEP_TASKS_PER_NODE SLURM_STEP_NODELIST "
    "SLURM_TASKS_PER_NODE SLURM_TASK_PID SLURM_HOSTFILE SLURM_DISTRIBUTION SLURM_CPUS_PER_TASK SLURM_MEM_PER_CPU "
    "SLURM_MEM_PER_NODE SLURM_STEP_LAUNCHER_PORT SLURM_SRUN_COMM_HOST SLURM_SRUN_COMM_PORT SLURM_LAUNCH_NODE_IPADDR "
    "SLURM_GPUS_PER_TASK SLURM_TRES_PER_TASK SLURM_EXPORT_ENV SLURM_MPI_TYPE SLURM_UMASK"
)
"""Programs that find them take themselves for tasks of `srun` that are not there."""
_HEAD = """\
#!/bin/sh
# Made by Penstock for one attempt of a job; see docs/slurm.md.
spool={spool}
number=${{SLURM_ARRAY_JOB_ID:+${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID}}
number=${{number:-$SLURM_JOB_ID}}
{elements}
[ -d "$spool/claims" ] || {{ echo "penstock: $spool is not there on $(uname -n)" >&2; exit {not_shared}; }}
mkdir "$spool/claims/$key" 2>/dev/null || exit {claimed}
: > "$spool/claims/$key/$number"
"""
_REPLICA = """\
unset {unset}
{variables}
exec < /dev/null >> "$folder/attempt-$attempt.rank-$rank.log" 2>&1
node=${{SLURMD_NODENAME:-$(uname -n)}} got=- pid=
ended() {{
  {deaf}
  tries=0
  until : > "$spool/news/$key.$rank.end.$number.$1.$2.$got"; do
    tries=$((tries + 1)); [ $tries -lt 60 ] || break; sleep 1
  done
}}
pass() {{
  [ $got = - ] || return 0  # a program is asked once
  got=$1
  told "$2"
}}
told() {{
  [ -z "$pid" ] || kill -s "$1" -- "-$pid" 2>/dev/null || kill -s "$1" "$pid" 2>/dev/null
}}
trap 'pass TERM {signal}' TERM
trap 'pass INT {signal}' INT
trap 'pass STOP {signal}' USR1
trap 'got=KILL; told KILL' USR2
trap '' HUP
cd "$workdir" || {{ ended {never} -; exit {never}; }}
setsid {command} &
pid=$!
: > "$spool/news/$key.$rank.start.$number.$pid.$node"
case $got in -) ;; KILL) told KILL;; *) told {signal};; esac
me=$$
(
  trap '[ -z "$nap" ] || kill "$nap"; exit 0' TERM
  trap '' INT USR1 USR2
  nap=
  while sleep {look} & nap=$!; wait "$nap"; kill -0 "$me"; do
    : > "$spool/alive/$key.$rank"
    if [ -e "$spool/stop/$key.$rank.kill" ]; then kill -s USR2 "$me"
    elif [ -e "$spool/stop/$key.$rank.stop" ]; then rm -f "$spool/stop/$key.$rank.stop"; kill -s USR1 "$me"; fi
  done
) > /dev/null 2>&1 &
looks=$!
while :; do wait "$pid"; code=$?; kill -0 "$pid" 2>/dev/null || break; done
died=-
if [ $code -gt 128 ]; then
  jobs > "$spool/alive/$key.$rank.jobs" 2>/dev/null
  grep -q "Done($code)" "$spool/alive/$key.$rank.jobs" 2>/dev/null || died=$((code - 128))
  rm -f "$spool/alive/$key.$rank.jobs"
fi
sleep 0.05  # Slurm signals the program too, perhaps before this shell, which has to hear of it
kill -s KILL -- "-$pid" 2>/dev/null
kill -s TERM "$looks" 2>/dev/null
[ ! -e "$spool/alive/$key.$rank" ] || rm -f "$spool/alive/$key.$rank"
if [ $died = - ]; then ended $code -; else ended - $died; fi
exit $code
"""
_GANG = """\
trap : TERM INT USR1 USR2
srun --kill-on-bad-exit=0 --mpi=none --export=ALL sh -c {replica} &
srun=$!
while :; do wait "$srun"; code=$?; kill -0 "$srun" 2>/dev/null || break; done
exit $code
"""


def script_of(
    elements: Sequence[Sequence[StartReplica]],
    spool: str,
    folders: Mapping[JobId, str],
    variables: Mapping[tuple[JobId, Rank], Mapping[str, str]],
) -> str:
    """Return the script of one attempt, or of several elements of an array that differ by their numbers alone.

    Args:
        elements: the replicas of each attempt, by rank.
        spool: the folder of claims and news.
        folders: of each job, by its number.
        variables: of each replica, by job and rank.
    """
    first = elements[0][0]
    gang = len(elements[0]) > 1
    head = _HEAD.format(
        spool=shlex.quote(spool), elements=_elements(elements, folders), claimed=CLAIMED_CODE,
        not_shared=NOT_SHARED_CODE,
    )  # fmt: skip
    signal = first.checkpoint.stop_signal.removeprefix("SIG")
    replica = _REPLICA.format(
        unset=_UNSET, variables=_variables(elements, variables), signal=signal, never=NEVER_RAN_CODE, look=LOOK_S,
        command=shlex.join(first.command), deaf="trap '' TERM INT USR1 USR2",
    )  # fmt: skip
    if not gang:
        return f"{head}rank=0\n{replica}"
    names = "export spool number key folder workdir attempt\n"
    return head + names + _GANG.format(replica=shlex.quote(_rank(elements[0]) + replica))


def _elements(elements: Sequence[Sequence[StartReplica]], folders: Mapping[JobId, str]) -> str:
    """Return what says which attempt this is."""
    lines = []
    for replicas in elements:
        key, folder = replicas[0].key, folders[replicas[0].key.job_id]
        workdir = replicas[0].workdir or folder
        told = (
            f"key={key.job_id}.{key.attempt} attempt={key.attempt} folder={shlex.quote(folder)} "
            f"workdir={shlex.quote(workdir)}"
        )
        lines.append(f"{replicas[0].array_index}) {told};;" if len(elements) > 1 or _is_element(replicas) else told)
    if len(elements) == 1 and not _is_element(elements[0]):
        return lines[0]
    return "\n".join(["case $SLURM_ARRAY_TASK_ID in", *lines, f"*) exit {NEVER_RAN_CODE};;", "esac"])


def _is_element(replicas: Sequence[StartReplica]) -> bool:
    return replicas[0].array_id is not None


def _rank(replicas: Sequence[StartReplica]) -> str:
    """Return what says which replica a task of srun is: by its node, and its number there."""
    lines = [f"{one.node_names[one.node_rank]}:{one.local_rank}) rank={one.key.rank};;" for one in replicas]
    return "\n".join(["case $SLURMD_NODENAME:$SLURM_LOCALID in", *lines, f"*) exit {NEVER_RAN_CODE};;", "esac\n"])


def _variables(
    elements: Sequence[Sequence[StartReplica]], variables: Mapping[tuple[JobId, Rank], Mapping[str, str]]
) -> str:
    """Return what sets the variables of each replica: those that all have, then those of each."""
    replicas = [one for element in elements for one in element]
    each = [variables[one.key.job_id, one.key.rank] for one in replicas]
    common = {name: value for name, value in each[0].items() if all(v.get(name) == value for v in each)}
    lines = [_exports(common.items())]
    if len(each) > 1:
        lines.append("case $key.$rank in")
        for one, own in zip(replicas, each, strict=True):
            differing = _exports((name, value) for name, value in own.items() if name not in common)
            lines.append(f"{one.key}) {differing};;")
        lines.append("esac")
    return "\n".join(lines)


def _exports(variables: Iterable[tuple[str, str]]) -> str:
    return " ".join(["export", *(f"{name}={shlex.quote(value)}" for name, value in variables)])
