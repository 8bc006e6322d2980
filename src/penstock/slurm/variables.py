"""The SLURM_* variables of batch scripts and of tasks.

The standard library alone. Source: sbatch(1) and srun(1), OUTPUT ENVIRONMENT VARIABLES; what Slurm 22.05 sets.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from penstock.formats.hostlist import compressed
from penstock.slurm.settings import Settings

CLUSTER = "penstock"


class Facts(NamedTuple):
    """What is known once the job has started. `nodes` has the node of each place; devices are those of this place."""

    job: int
    name: str
    nodes: Sequence[str]
    uid: int
    gid: int
    user: str
    attempt: int = 1
    place: int = 0
    array: tuple[int, int] | None = None
    """Number of the array, and the index."""
    devices: str = ""
    """Numbers of its devices, such as `0,1`."""
    start: int = 0
    """Unix seconds."""
    end: int = 0


def counts(numbers: Sequence[int]) -> str:
    """Return `2(x3),1` for 2, 2, 2, 1."""
    runs = [(number, len(list(run))) for number, run in groupby(numbers)]
    return ",".join(f"{number}(x{times})" if times > 1 else str(number) for number, times in runs)


def job_variables(settings: Settings, facts: Facts) -> dict[str, str]:
    """Return the variables that the script and all tasks of a job have."""
    nodes = compressed(list(facts.nodes))
    found: dict[str, str | int] = {
        "SLURM_JOB_ID": facts.job,
        "SLURM_JOBID": facts.job,
        "SLURM_JOB_NAME": facts.name,
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_NODELIST": nodes,
        "SLURM_JOB_NUM_NODES": settings.nodes,
        "SLURM_NNODES": settings.nodes,
        "SLURM_JOB_PARTITION": settings.partition,
        "SLURM_JOB_ACCOUNT": settings.account,
        "SLURM_JOB_QOS": settings.qos,
        "SLURM_JOB_UID": facts.uid,
        "SLURM_JOB_GID": facts.gid,
        "SLURM_JOB_USER": facts.user,
        "SLURM_JOB_CPUS_PER_NODE": counts(settings.place_cpus),
        "SLURM_TASKS_PER_NODE": counts(settings.place_tasks),
        "SLURM_SUBMIT_DIR": settings.submit_dir,
        "SLURM_SUBMIT_HOST": settings.submit_host,
        "SLURM_CLUSTER_NAME": CLUSTER,
        "SLURM_PRIO_PROCESS": 0,
    }
    return {name: str(value) for name, value in (found | _asked(settings, facts)).items()}


def _asked(settings: Settings, facts: Facts) -> dict[str, str | int]:
    """Return the variables that a job has only where it asked for something."""
    per_task = settings.ntasks or settings.ntasks_per_node
    total = sum(settings.place_tasks)
    wanted: dict[str, str | int] = {
        "SLURM_NTASKS": total if per_task else 0,
        "SLURM_NPROCS": total if per_task else 0,
        "SLURM_NTASKS_PER_NODE": settings.ntasks_per_node,
        "SLURM_CPUS_PER_TASK": settings.cpus_per_task,
        "SLURM_MEM_PER_NODE": settings.mem_per_node,
        "SLURM_MEM_PER_CPU": settings.mem_per_cpu,
        "SLURM_MEM_PER_GPU": settings.mem_per_gpu,
        "SLURM_GPUS": settings.gpus,
        "SLURM_GPUS_ON_NODE": settings.gpus_on_node,
        "SLURM_GPUS_PER_NODE": settings.gpus_per_node,
        "SLURM_GPUS_PER_TASK": settings.gpus_per_task,
        "SLURM_JOB_GPUS": facts.devices if settings.gpus_on_node else "",
        "SLURM_RESTART_COUNT": facts.attempt - 1,
        "SLURM_JOB_START_TIME": facts.start,
        "SLURM_JOB_END_TIME": facts.end,
    }
    found = {name: value for name, value in wanted.items() if value}
    if facts.array is not None:
        number, index = facts.array
        found |= {
            "SLURM_ARRAY_JOB_ID": number,
            "SLURM_ARRAY_TASK_ID": index,
            "SLURM_ARRAY_TASK_COUNT": settings.array_count,
            "SLURM_ARRAY_TASK_MIN": settings.array_min,
            "SLURM_ARRAY_TASK_MAX": settings.array_max,
            "SLURM_ARRAY_TASK_STEP": settings.array_step,
        }
    return found


def script_variables(settings: Settings, facts: Facts, host: str) -> dict[str, str]:
    """Return all variables of the batch script, but for SLURM_TASK_PID, which its process sets."""
    node = facts.nodes[0]
    own = {
        "SLURM_CPUS_ON_NODE": str(settings.place_cpus[0]),
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_GTIDS": "0",
        "SLURM_TOPOLOGY_ADDR": node,
        "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
        "SLURMD_NODENAME": node,
        "ENVIRONMENT": "BATCH",
        "HOSTNAME": host,
    }
    if settings.export and settings.export.upper() != "ALL":
        own["SLURM_EXPORT_ENV"] = settings.export
        if settings.export.upper() != "NIL":
            own["SLURM_GET_USER_ENV"] = "1"
    elif settings.export:
        own["SLURM_EXPORT_ENV"] = "ALL"
    return job_variables(settings, facts) | own


class Step(NamedTuple):
    """One step: how many tasks each of its places has. `places` are numbers of the job's places."""

    number: int
    places: tuple[int, ...]
    tasks: tuple[int, ...]
    cpus_per_task: int = 0
    host: str = ""
    """Address of the place that starts it."""

    @property
    def total(self) -> int:
        return sum(self.tasks)


def task_variables(step: Step, nodes: Sequence[str], node_id: int, local: int) -> dict[str, str]:
    """Return the variables of one task of a step.

    Args:
        nodes: of the job, by place.
        node_id: which of the step's places it runs at.
        local: which of that place's tasks it is.
    """
    first = sum(step.tasks[:node_id])
    names = [nodes[place] for place in step.places]
    ids = ",".join(str(first + number) for number in range(step.tasks[node_id]))
    found: dict[str, str | int] = {
        "SLURM_PROCID": first + local,
        "SLURM_LOCALID": local,
        "SLURM_NODEID": node_id,
        "SLURM_GTIDS": ids,
        "SLURM_STEP_ID": step.number,
        "SLURM_STEPID": step.number,
        "SLURM_STEP_NUM_TASKS": step.total,
        "SLURM_STEP_NUM_NODES": len(step.places),
        "SLURM_STEP_TASKS_PER_NODE": counts(step.tasks),
        "SLURM_STEP_NODELIST": compressed(names),
        "SLURM_NTASKS": step.total,
        "SLURM_NPROCS": step.total,
        "SLURM_NNODES": len(step.places),
        "SLURM_TASKS_PER_NODE": counts(step.tasks),
        "SLURMD_NODENAME": names[node_id],
        "SLURM_LAUNCH_NODE_IPADDR": step.host,
    }
    if step.cpus_per_task:
        found["SLURM_CPUS_PER_TASK"] = step.cpus_per_task
    return {name: str(value) for name, value in found.items()}
