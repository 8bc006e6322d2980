"""The script that an attempt of a job is in Slurm: plain `sh`, for a node need not have Penstock.

It claims its attempt by making a file, which only one can do: whatever is submitted twice, or put back by Slurm, runs
once. Programs that it starts beside that of the job cost as much as what Slurm itself does for a job: there are few.
What happens is said by files whose names say all of it (`spool.py`). A stop comes as a signal, or by a file that
it looks for, since signals get lost with a `slurmstepd` that was killed.
"""

import shlex
import signal as signal_numbers
from collections.abc import Iterable, Mapping, Sequence

from penstock.core.messages.orders import StartReplica
from penstock.core.model.ids import JobId, Rank
from penstock.engines.slurm.passing.options import indexes_of

CLAIMED_CODE = 75
"""Another job has the attempt already."""
NOT_SHARED_CODE = 74
"""The shared folder is not there on the node."""
NEVER_RAN_CODE = 126
LOOK_S = 5
"""It shows that it lives, and looks for stops, this often."""
SETTLE_S = 0.1
"""Half of it after its program has ended, a script waits for signals that were sent to both; where the program ends
within the first half, no `sleep` of its own is needed for that."""
_UNSET = (
    "SLURM_NTASKS SLURM_NPROCS SLURM_NTASKS_PER_NODE SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_GTIDS SLURM_STEP_ID "
    "SLURM_STEPID SLURM_STEP_NUM_TASKS SLURM_STEP_NUM_NODES SLURM_STEP_TASKS_PER_NODE SLURM_STEP_NODELIST "
    "SLURM_TASKS_PER_NODE SLURM_TASK_PID SLURM_HOSTFILE SLURM_DISTRIBUTION SLURM_CPUS_PER_TASK SLURM_MEM_PER_CPU "
    "SLURM_MEM_PER_NODE SLURM_STEP_LAUNCHER_PORT SLURM_SRUN_COMM_HOST SLURM_SRUN_COMM_PORT SLURM_LAUNCH_NODE_IPADDR "
    "SLURM_GPUS_PER_TASK SLURM_TRES_PER_TASK SLURM_EXPORT_ENV SLURM_MPI_TYPE SLURM_UMASK"
)
"""Programs that find them take themselves for tasks of `srun` that are not there."""
_OF_ARRAYS = (
    "SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_COUNT SLURM_ARRAY_TASK_MAX SLURM_ARRAY_TASK_MIN "
    "SLURM_ARRAY_TASK_STEP"
)
"""Of jobs that are no array here, and go into one of Slurm's together."""
_HEAD = """\
#!/bin/sh
# Made by Penstock for one attempt of a job; see docs/slurm.md.
spool={spool}
number=${{SLURM_ARRAY_JOB_ID:+${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID}}
number=${{number:-$SLURM_JOB_ID}}
{elements}
[ -d "$spool/claims" ] || {{ echo "penstock: $spool is not there on $(uname -n)" >&2; exit {not_shared}; }}
set -C
printf %s "$number" 2>/dev/null > "$spool/claims/$key" || exit {claimed}
set +C
"""
_REPLICA = """\
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
{command}
(  # no variable of the job is one of this script
unset {unset}
{variables}
exec setsid "$@"
) &
pid=$!
now() {{
  up=
  read -r up rest < /proc/uptime
  up=${{up:+1${{up%.*}}${{up#*.}}}}  # 1/100 s
}}
now
began=$up
: > "$spool/news/$key.$rank.start.$number.$pid.$node"
case $got in -) ;; KILL) told KILL;; *) told {signal};; esac
me=$$
sleep {settle} | (
  nap=
  trap '[ -z "$nap" ] || kill "$nap"; exit 0' TERM
  trap '' INT USR1 USR2
  read -r nothing
  kill -0 "$pid" || exit 0  # such a signal as below would be lost while this shell begins
  while sleep {look} & nap=$!; wait "$nap"; kill -0 "$me"; do
    : > "$spool/alive/$key.$rank"
    if [ -e "$spool/stop/$key.$rank.kill" ]; then kill -s USR2 "$me"
    elif [ -e "$spool/stop/$key.$rank.stop" ]; then rm -f "$spool/stop/$key.$rank.stop"; kill -s USR1 "$me"; fi
  done
) > /dev/null 2>&1 &
looks=$!
while :; do wait "$pid"; code=$?; kill -0 "$pid" 2>/dev/null || break; done
# A signal that comes as the program ends has cut that short: it is waited for and gone.
wait "$pid"; again=$?; [ $again = 127 ] || code=$again
died=-
if [ $code -gt 128 ]; then
  jobs > "$spool/alive/$key.$rank.jobs" 2>/dev/null
  grep -q "^\\[[0-9]*\\][ +-]*Done($code)" "$spool/alive/$key.$rank.jobs" 2>/dev/null || died=$((code - 128))
  rm -f "$spool/alive/$key.$rank.jobs"
fi
now
# Slurm signals the program too, perhaps before this shell, which has to hear of it: it has {half} s to.
if [ -n "$up" ] && [ $((up - began)) -lt {half_cs} ]; then wait "$looks"
else kill -s TERM "$looks" 2>/dev/null; sleep {half}; fi
kill -s KILL -- "-$pid" 2>/dev/null
[ "$got:$died" != KILL:{usr2} ] || died=9  # the signal to this shell that stands for it was the first to arrive
[ ! -e "$spool/alive/$key.$rank" ] || rm -f "$spool/alive/$key.$rank"
if [ $died = - ]; then ended $code -; else ended - $died; fi
exit $code
"""
_GANG = """\
trap : TERM INT USR1 USR2
srun --kill-on-bad-exit=0 --mpi=none --export=ALL sh -c {replica} &
srun=$!
while :; do wait "$srun"; code=$?; kill -0 "$srun" 2>/dev/null || break; done
wait "$srun"; again=$?; [ $again = 127 ] || code=$again
exit $code
"""


def script_of(
    elements: Sequence[Sequence[StartReplica]],
    spool: str,
    folders: Mapping[JobId, str],
    variables: Mapping[tuple[JobId, Rank], Mapping[str, str]],
) -> str:
    """Return the script of one attempt, or of several that go into one array of Slurm.

    Args:
        elements: the replicas of each attempt, by rank.
        spool: the folder of claims and news.
        folders: of each job, by its number.
        variables: of each replica, by job and rank.
    """
    first = elements[0][0]
    gang, indexes = len(elements[0]) > 1, indexes_of(elements)
    head = _HEAD.format(
        spool=shlex.quote(spool), elements=_elements(elements, indexes, folders), claimed=CLAIMED_CODE,
        not_shared=NOT_SHARED_CODE,
    )  # fmt: skip
    signal = first.checkpoint.stop_signal.removeprefix("SIG")
    replica = _REPLICA.format(
        unset=_UNSET if first.array_id is not None or not indexes else f"{_UNSET} {_OF_ARRAYS}",
        variables=_variables(elements, folders, variables), signal=signal, never=NEVER_RAN_CODE, look=LOOK_S,
        settle=SETTLE_S, half=SETTLE_S / 2, half_cs=int(SETTLE_S * 50), command=_commands(elements),
        deaf="trap '' TERM INT USR1 USR2", usr2=int(signal_numbers.SIGUSR2),
    )  # fmt: skip
    if not gang:
        return f"{head}rank=0\n{replica}"
    names = "export spool number key job folder workdir attempt\n"
    return head + names + _GANG.format(replica=shlex.quote(_rank(elements[0]) + replica))


def _elements(elements: Sequence[Sequence[StartReplica]], indexes: Sequence[int], folders: Mapping[JobId, str]) -> str:
    """Return what says which attempt this is."""
    firsts = [replicas[0] for replicas in elements]
    jobs = [one.key.job_id for one in firsts]
    each = [f"job={one.key.job_id} attempt={one.key.attempt}" for one in firsts]
    if not indexes:
        which = each[0]
    else:
        words = (f"{index}) {said};;" for index, said in zip(indexes, each, strict=True))
        which = "\n".join(["case $SLURM_ARRAY_TASK_ID in", *words, f"*) exit {NEVER_RAN_CODE};;", "esac"])
    places = [folders[job] for job in jobs]
    workdirs = [one.workdir or folders[one.key.job_id] for one in firsts]
    lines = [which, "key=$job.$attempt"]
    for name, values in (("folder", places), ("workdir", workdirs)):
        word = _word(values, jobs, places if values is workdirs else ())
        if word is None:
            lines += _cases("$job", jobs, (f"{name}={shlex.quote(value)}" for value in values))
        else:
            lines.append(f"{name}={word}")
    return "\n".join(lines)


def _commands(elements: Sequence[Sequence[StartReplica]]) -> str:
    """Return what makes the words of the program the arguments of the shell."""
    firsts = [replicas[0] for replicas in elements]
    sets = [f"set -- {shlex.join(one.command)}" for one in firsts]
    if len(set(sets)) == 1:
        return sets[0]
    return "\n".join(_cases("$job", [one.key.job_id for one in firsts], sets))


def _cases(told: str, names: Iterable[object], texts: Iterable[str]) -> list[str]:
    return [f"case {told} in", *(f"{name}) {text};;" for name, text in zip(names, texts, strict=True)), "esac"]


def _word(values: Sequence[str], jobs: Sequence[JobId], folders: Sequence[str]) -> str | None:
    """Return one word of the shell that is each job's value, by what differs: `$job` or `$folder`; None for none."""
    if len(set(values)) == 1:
        return shlex.quote(values[0])
    for names, told, splits in ((folders, '"$folder"', -1), (jobs, '"$job"', 1), (jobs, '"$job"', -1)):
        parts = {tuple(value.rsplit(str(name), splits)) for value, name in zip(values, names, strict=False)}
        if len(parts) == 1:
            return told.join(shlex.quote(part) if part else "" for part in parts.pop())
    return None


def _rank(replicas: Sequence[StartReplica]) -> str:
    """Return what says which replica a task of srun is: by its node, and its number there."""
    lines = [f"{one.node_names[one.node_rank]}:{one.local_rank}) rank={one.key.rank};;" for one in replicas]
    return "\n".join(["case $SLURMD_NODENAME:$SLURM_LOCALID in", *lines, f"*) exit {NEVER_RAN_CODE};;", "esac\n"])


def _variables(
    elements: Sequence[Sequence[StartReplica]],
    folders: Mapping[JobId, str],
    variables: Mapping[tuple[JobId, Rank], Mapping[str, str]],
) -> str:
    """Return what sets the variables of each replica: those that all have, then those of each."""
    replicas = [one for element in elements for one in element]
    each = [variables[one.key.job_id, one.key.rank] for one in replicas]
    jobs = [one.key.job_id for one in replicas]
    common: dict[str, str] = {}
    for name in each[0]:
        values = [own[name] for own in each if name in own]
        word = _word(values, jobs, [folders[job] for job in jobs]) if len(values) == len(each) else None
        if word is not None:
            common[name] = word
    lines = [_exports(common.items())]
    if len(each) > 1:
        rest = [[(name, shlex.quote(value)) for name, value in own.items() if name not in common] for own in each]
        lines += _cases("$key.$rank", (one.key for one in replicas), map(_exports, rest)) if any(rest) else []
    return "\n".join(lines)


def _exports(words: Iterable[tuple[str, str]]) -> str:
    return " ".join(["export", *(f"{name}={word}" for name, word in words)])
