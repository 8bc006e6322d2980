"""What an agent in some group of version 2 finds: run by `test_delegation.py`, prints one JSON object.

    python delegated.py GROUP UID PARENT

Enters GROUP with a second process, becomes UID, chooses its containment, and runs one program in a box.
"""

import json
import os
import sys
import time
from pathlib import Path

from penstock.core.model.resources import Resources
from penstock.engines.processes.boxes import kill_inside
from penstock.engines.processes.containment import choose


def main() -> None:
    group, uid, parent = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    server = _asleep()
    try:
        print(json.dumps(_found(parent, server)))
    finally:
        os.kill(server, 9)
        os.waitpid(server, 0)


def _found(parent: str, server: int) -> dict[str, object]:
    containment = choose(parent)
    box = containment.box("n1.1", Resources(cpu_milli=500, memory_bytes=48 << 20))
    again = choose(parent)
    program = _asleep(box.gates)
    while program not in box.pids():
        time.sleep(0.01)
        if os.waitpid(program, os.WNOHANG)[0]:
            sys.exit(f"the program could not enter {box.gates}")
    folder = Path(box.gates[0]).parent
    said = {
        "kind": containment.kind,
        "again": again.kind,
        "agent": _group_of("self"),
        "server": _group_of(str(server)),
        "program": _group_of(str(program)),
        "cpu": _text(folder / "cpu.max"),
        "memory": _text(folder / "memory.max"),
        "used_us": box.usage().cpu_us,
    }
    kill_inside(box)
    os.waitpid(program, 0)
    while not kill_inside(box):
        time.sleep(0.01)
    box.remove()
    containment.close()
    return said | {"left": folder.exists() or folder.parent.exists()}


def _asleep(gates: tuple[str, ...] = ()) -> int:
    """Return the number of a process that enters groups and sleeps."""
    pid = os.fork()
    if not pid:
        try:
            for gate in gates:
                Path(gate).write_text(str(os.getpid()), encoding="ascii")
            os.execlp("sleep", "sleep", "60")
        except OSError as error:
            print(error, _group_of("self"), file=sys.stderr)
        finally:
            os._exit(1)
    return pid


def _group_of(pid: str) -> str:
    lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii").splitlines()
    return next(line[3:] for line in lines if line.startswith("0::"))


def _text(path: Path) -> str:
    return path.read_text(encoding="ascii").strip() if path.exists() else ""


if __name__ == "__main__":
    main()
