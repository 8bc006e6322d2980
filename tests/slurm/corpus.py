"""Batch scripts of the kinds that clusters document for their users, and how one of them is run and looked at.

Each is written for this test. What it left is compared without numbers of jobs and the name of the host: exit code,
what the commands printed, and the files that are there afterwards. `recorded.json` has what Slurm 22.05.8 left.
"""
# ruff: noqa: E501 - scripts as they stand

import os
import re
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

WAIT = "sbatch --wait job.sh"
QUIET = f"{WAIT} > /dev/null"
RUN_S = 120


class Case(NamedTuple):
    script: str
    """The batch script, after `#!/bin/bash`."""
    run: str = QUIET
    """What a user types."""
    files: Mapping[str, str] = {}
    unordered: bool = False
    """Lines of its outputs come in any order."""


class Left(NamedTuple):
    """What a case left behind."""

    code: int
    said: str
    files: dict[str, str]


ENV = "for name in {}; do echo $name=${{!name-unset}}; done\n"


def env(names: str) -> str:
    """Return the lines that print some variables, SLURM_ before each name."""
    return ENV.format(" ".join(f"SLURM_{name}" for name in names.split()))


RANKS = "bash -c 'echo rank $SLURM_PROCID local $SLURM_LOCALID node $SLURM_NODEID of $SLURM_NTASKS'"
CASES: dict[str, Case] = {
    "serial": Case("#SBATCH -J serial\n#SBATCH -t 10:00\n" + env("JOB_NAME NTASKS NPROCS CPUS_PER_TASK JOB_NUM_NODES NNODES "
                   "TASKS_PER_NODE JOB_CPUS_PER_NODE CPUS_ON_NODE PROCID LOCALID NODEID GTIDS MEM_PER_NODE RESTART_COUNT "
                   "ARRAY_TASK_ID") + "basename $PWD; basename $0; echo $ENVIRONMENT\n"),
    "openmp": Case("#SBATCH -n1 -c4\nexport OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\necho $OMP_NUM_THREADS $SLURM_NTASKS\n"),
    "ranks": Case(f"#SBATCH --ntasks=3\nsrun {RANKS} | sort\n" + env("NTASKS NPROCS")),
    "hybrid": Case("#SBATCH -N2 -n4 --cpus-per-task=2\n" + env("NTASKS CPUS_PER_TASK NNODES TASKS_PER_NODE JOB_CPUS_PER_NODE")
                   + f"srun {RANKS} | sort\n"),
    "uneven": Case(f"#SBATCH -N2 -n5\nsrun {RANKS} | sort\n" + env("NTASKS TASKS_PER_NODE")),
    "devices": Case("#SBATCH --gpus=a100:2\n" + env("GPUS GPUS_ON_NODE")),
    "devices_of_nodes": Case("#SBATCH --nodes=2 --gres=gpu:a100:2\n" + env("GPUS_ON_NODE NNODES") ),
    "array_blanks": Case("#SBATCH --array   1-2\n#SBATCH   --output  out_%a.txt\necho $SLURM_ARRAY_TASK_ID\n"),
    "array_folders": Case("#SBATCH -a 1-2\n#SBATCH -o runs/run_%a/log -e runs/run_%a/err\necho out; echo err >&2\n",
                          run=f"mkdir -p runs/run_1 runs/run_2; {QUIET}"),
    "array_append": Case("#SBATCH --array=0-3 --open-mode=append -o all.txt\necho block $((SLURM_ARRAY_TASK_ID * 10))\n",
                         unordered=True),
    "array_scratch": Case("#SBATCH --array=1-2 -o out_%a\nexport TMPDIR=$PWD/tmp_$SLURM_ARRAY_TASK_ID\nmkdir $TMPDIR\n"
                          "mktemp >/dev/null; ls $TMPDIR | wc -l; rm -r $TMPDIR\n"),
    "array_throttle": Case("#SBATCH --array=1-4%2 -o out_%a\n" + env("ARRAY_TASK_COUNT ARRAY_TASK_MIN ARRAY_TASK_MAX "
                           "ARRAY_TASK_STEP ARRAY_TASK_ID")),
    "array_list": Case("#SBATCH --array=4,7,22 -o out_%a\n" + env("ARRAY_TASK_COUNT ARRAY_TASK_MIN ARRAY_TASK_MAX ARRAY_TASK_ID")),
    "array_steps": Case("#SBATCH --array=1-50:20 -o out_%3a\n" + env("ARRAY_TASK_STEP ARRAY_TASK_MAX ARRAY_TASK_COUNT")),
    "array_names": Case("#SBATCH --array=5 --output=id%A_%a.log --error=id%A_%4a.err\necho o; echo e >&2\n"),
    "array_lines": Case("#SBATCH -a 1-3 -o out_%a\nsed -n ${SLURM_ARRAY_TASK_ID}p seeds.txt\n", files={"seeds.txt": "11\n22\n33\n"}),
    "copy_back": Case("work=$(mktemp -d)\ntrap 'cp $work/result $SLURM_SUBMIT_DIR; rm -r $work' EXIT TERM\ncd $work\n"
                      "echo 42 > result\n"),
    "no_requeue": Case("#SBATCH --no-requeue\necho once\n"),
    "master_worker": Case("#SBATCH -N3 -n5\nscontrol show hostnames $SLURM_JOB_NODELIST | wc -l\n"
                          "srun hostname | sort | uniq -c | awk '{print $1}'\n"),
    "server_client": Case("#SBATCH -n2\nsrun -n1 --exact bash -c 'echo ready > up; sleep 600' 2> /dev/null &\n"
                          "until [ -e up ]; do sleep 0.1; done\ncat up; scancel --version >/dev/null 2>&1; kill %1; wait\necho over\n"),
    "full_nodes": Case("#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n" + env("NTASKS NTASKS_PER_NODE TASKS_PER_NODE NNODES")
                       + "srun bash -c 'echo $SLURM_PROCID' | sort -n | tr '\\n' ' '\n"),
    "srun_cpus": Case("#SBATCH -n2 -c2\nexport SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\nsrun bash -c 'echo $SLURM_CPUS_PER_TASK'\n"),
    "steps_beside": Case("#SBATCH -n3\nfor i in 1 2 3; do srun -n1 --exact bash -c \"echo step > part_$i\" & done\nwait\n"
                         "ls part_*\n"),
    "multi_prog": Case("#SBATCH -n3\nsrun --multi-prog tasks.conf | sort\n",
                       files={"tasks.conf": "# who does what\n0 echo leads %t\n1-2 bash -c 'echo works %t %o'\n"}),
    "chain": Case("echo $1 >> log\n", run="one=$(sbatch --parsable -o /dev/null job.sh first)\n"
                  "sbatch --wait --dependency=afterok:$one -o /dev/null job.sh second > /dev/null; cat log"),
    "after_any": Case("#SBATCH -o /dev/null\necho $1 >> log; exit ${2-0}\n", run="one=$(sbatch --parsable job.sh first 3)\n"
                      "two=$(sbatch --parsable -d afternotok:$one job.sh second)\n"
                      "sbatch --wait -d afterany:$one:$two job.sh third > /dev/null; cat log"),
    "collector": Case("#SBATCH -o /dev/null\necho $SLURM_ARRAY_TASK_ID >> parts\n", run="id=$(sbatch --parsable -a 1-3 job.sh)\n"
                      "sbatch --wait -d afterok:$id -o /dev/null --wrap 'sort parts > whole; rm parts' > /dev/null; cat whole"),
    "directive_dependency": Case("echo first > log\n", run="id=$(sbatch --parsable -o /dev/null job.sh)\n"
                                 "printf '#!/bin/sh\\n#SBATCH --dependency=afterok:%s\\n#SBATCH -o second\\ncat log\\n' $id > next.sh\n"
                                 "sbatch --wait next.sh > /dev/null; rm next.sh; cat second"),
    "singleton": Case("#SBATCH -J only --dependency=singleton -o /dev/null\necho $1 >> log\n",
                      run="sbatch job.sh 1 > /dev/null; sbatch --wait job.sh 2 > /dev/null; cat log"),
    "export_none": Case("#SBATCH --export=NONE\necho ${MINE-unset} $SLURM_EXPORT_ENV; srun --export=ALL bash -c 'echo in step'\n",
                        run=f"export MINE=x; {QUIET}"),
    "export_some": Case("echo ${A-unset} ${B-unset} ${C-unset}\n", run="export A=1 B=2; sbatch --wait --export=A,C=3 job.sh >/dev/null"),
    "export_all": Case("echo ${A-unset} ${C-unset}\n", run="export A=1; sbatch --wait --export=ALL,C=3 job.sh > /dev/null"),
    "pool_of_processes": Case("#SBATCH -c4\nseq 6 | xargs -P 4 -I{} sh -c 'echo task {}' | sort\n"),
    "launcher": Case("#SBATCH -N2 --ntasks-per-node=1\nhead=$(scontrol show hostnames | head -n1)\n[ -n \"$head\" ] && echo head\n"
                     "srun bash -c 'echo node_rank $SLURM_NODEID of $SLURM_NNODES' | sort\n"),
    "many_ranks": Case("#SBATCH -N4 -n16\nsrun bash -c 'echo $SLURM_PROCID:$SLURM_LOCALID:$SLURM_NODEID' | sort -n\n"),
    "login_shell": Case("", run="printf '#!/bin/bash -l\\n#SBATCH -o out\\necho $0 | xargs basename; shopt -q login_shell && echo login\\n'"
                        f" > job.sh; {QUIET}"),
    "python": Case("", run="printf '#!/usr/bin/env python3\\n#SBATCH -o out\\nimport os, sys\\nprint(os.environ[\"SLURM_JOB_NAME\"], "
                   "sys.argv[1:])\\nsys.exit(4)\\n' > job.py; sbatch --wait job.py a 'b c' > /dev/null"),
    "here_document": Case("python3 - <<END\nprint(6 * 7)\nEND\n"),
    "exit_code": Case("echo done\nexit 3\n"),
    "exit_137": Case("exit 137\n"),
    "killed": Case("kill -9 $$\n"),
    "step_fails": Case("srun bash -c 'exit 2' 2> /dev/null\necho $?\n"),
    "step_killed": Case("srun bash -c 'kill -9 $$' 2> /dev/null\necho $?\n"),
    "highest_code": Case("#SBATCH -n3\nsrun bash -c 'exit $((SLURM_PROCID * 3))' 2> /dev/null\necho $?\n"),
    "step_files": Case("#SBATCH -n2\nsrun -o step_%t.out -e step_%t.err bash -c 'echo o $SLURM_PROCID; echo e >&2'\n"),
    "step_input": Case("#SBATCH -n1\nsrun cat < given\nsrun -n1 -i given cat\n", files={"given": "text\n"}),
    "labels": Case("#SBATCH -n2\nsrun -l bash -c 'echo hi' | sort\n"),
    "set_e": Case("set -e\nfalse\necho never\n"),
    "separate_error": Case("#SBATCH -o %x.out -e %x.err -J parts\necho o; echo e >&2\n"),
    "names": Case("#SBATCH -J nm --output=%x-%u-%n-%t-%s-%%-id%5j.out\necho\n"),
    "arguments": Case('echo $# "$1|$2"\n', run="sbatch --wait job.sh 'a b' --time=9 > /dev/null"),
    "wrap": Case("", run="sbatch --wait --wrap 'echo $0 | xargs basename; echo $SLURM_JOB_NAME' -o out > /dev/null"),
    "stdin": Case("", run="printf '#!/bin/sh\\n#SBATCH -o out\\necho $SLURM_NNODES\\n' | sbatch --wait > /dev/null"),
    "chdir": Case("#SBATCH -D sub\nbasename $PWD; basename $SLURM_SUBMIT_DIR\n", run=f"mkdir sub; {QUIET}"),
    "batch_input": Case("#SBATCH --input=given\ncat\n", files={"given": "text\n"}),
    "no_input": Case("cat; echo end\n"),
    "precedence": Case("#SBATCH -J line -c 2 -o out\necho $SLURM_JOB_NAME $SLURM_CPUS_PER_TASK\n",
                       run="export SBATCH_JOB_NAME=variable SBATCH_OUTPUT=other; sbatch --wait -J words job.sh > /dev/null"),
    "late_option": Case("echo first\n#SBATCH -J late\necho $SLURM_JOB_NAME\n"),
    "append_twice": Case("#SBATCH --open-mode=append -o log\necho run\n", run=f"{QUIET}; {QUIET}"),
    "truncate_twice": Case("#SBATCH -o log\necho run\n", run=f"{QUIET}; {QUIET}"),
    "inner": Case("#SBATCH -o outer\nsbatch --wait -o inner --wrap 'echo ${SLURM_NTASKS-unset} inside' > /dev/null\necho $?\n"),
    "asks_itself": Case("squeue -h -j $SLURM_JOB_ID -o '%T %j %D'\nscontrol show job $SLURM_JOB_ID | grep -c JobState=RUNNING\n"),
    "cancels_itself": Case("#SBATCH -e /dev/null\ntrap 'echo asked; exit 5' TERM\nscancel $SLURM_JOB_ID\nfor i in $(seq 100); do sleep 0.1; done\n",
                           run="sbatch --wait job.sh > /dev/null; [ $? -ne 0 ] && echo failed"),
    "memory": Case("#SBATCH -c2 --mem-per-cpu=100\n" + env("MEM_PER_CPU MEM_PER_NODE")),
    "memory_of_node": Case("#SBATCH --mem=1G\n" + env("MEM_PER_NODE MEM_PER_CPU")),
    "umask": Case("umask\ntouch made; stat -c %a made\n", run=f"umask 027; {QUIET}"),
    "no_shebang": Case("", run="echo 'echo hi' > bad.sh; sbatch bad.sh 2>/dev/null; [ $? -ne 0 ] && echo refused"),
    "dos_lines": Case("", run="printf '#!/bin/sh\\r\\necho\\r\\n' > bad.sh; sbatch bad.sh 2>/dev/null; [ $? -ne 0 ] && echo refused"),
    "unknown_option": Case("#SBATCH --no-such-option\n", run="sbatch job.sh 2>/dev/null; [ $? -ne 0 ] && echo refused"),
    "unknown_partition": Case("#SBATCH -p nowhere\n", run="sbatch job.sh 2>/dev/null; [ $? -ne 0 ] && echo refused"),
    "bad_time": Case("#SBATCH --time=soon\n", run="sbatch job.sh 2>/dev/null; [ $? -ne 0 ] && echo refused"),
    "missing_folder": Case("#SBATCH -o nowhere/out\necho ran > ran\n", run="sbatch --wait job.sh >/dev/null; [ $? -ne 0 ] && echo failed"),
}  # fmt: skip


DIFFERS = {"uneven": "tasks are dealt evenly to nodes; Slurm fills the first node as far as it has CPUs"}
"""What is meant to end otherwise than on Slurm, and why."""
SHORT = (
    "serial", "hybrid", "array_list", "array_append", "master_worker", "steps_beside", "multi_prog", "after_any",
    "export_none", "python", "killed", "step_files", "step_input", "names", "inner", "asks_itself", "cancels_itself",
    "unknown_option", "missing_folder",
)  # fmt: skip
"""Those of the short version."""


def run(name: str, folder: Path, environment: Mapping[str, str]) -> Left:
    """Run a case in a new folder, and return what it left."""
    case = CASES[name]
    folder.mkdir()
    (folder / "job.sh").write_text("#!/bin/bash\n" + case.script)
    for file, text in case.files.items():
        (folder / file).write_text(text)
    given = {"job.sh", *case.files}
    done = subprocess.run(
        ["bash", "-c", case.run], cwd=folder, env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=RUN_S,
    )  # fmt: skip
    files = {
        plain(str(path.relative_to(folder))): plain(path.read_text())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and str(path.relative_to(folder)) not in given
    }
    if case.unordered:
        files = {file: "\n".join(sorted(text.splitlines())) for file, text in files.items()}
    return Left(done.returncode, plain(done.stdout), files)


def plain(text: str) -> str:
    """Return a text without what differs from run to run: numbers of jobs, the name of the host."""
    text = re.sub(r"slurm-[0-9]+", "slurm-N", text)
    text = re.sub(r"\bid[0-9]+", "idN", text)
    return text.replace(socket.gethostname(), "HOST").replace(os.environ.get("USER", "root"), "USER")
