"""Runs tests on a kernel whose control groups are those of version 2 only, in a small virtual machine.

    python scripts/cgroup2_vm.py [PYTEST ARGUMENT ...]

For machines whose controllers are taken by version 1: a controller is in one of both, for the whole kernel. The machine
is emulated (no KVM is needed), has two NUMA nodes of one core with two threads each, and sees this machine's files, but
cannot change them: the same Python and the same tests run there as root. Needs Debian's `qemu-system-x86`; the kernel
and busybox are taken from Debian's packages, unpacked into `build/cgroup2` and not installed. A run takes some minutes.
"""

import gzip
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / "build/cgroup2"
TESTS = ["tests/engines/processes/" + name for name in (
    "test_containment.py", "test_shares_and_usage.py", "test_cpus_of_boxes.py", "test_device_filter.py",
    "test_devicefiles.py", "test_delegation.py",
)]  # fmt: skip
LIMIT_S = 1_800
"""The machine is ended then: an emulated one may hang where others take all processors."""
MODULES = ("virtio_pci", "virtio_blk", "9pnet_virtio", "9p")
DISK_BYTES = 16 * 2**20
DONE = "penstock-tests-ended"
MACHINE = [
    "-accel", "tcg,thread=multi", "-cpu", "Nehalem-v1", "--m", "2G", "-smp", "4,sockets=2,cores=1,threads=2",
    "-object", "memory-backend-ram,size=1G,id=m0", "-object", "memory-backend-ram,size=1G,id=m1",
    "-numa", "node,nodeid=0,cpus=0-1,memdev=m0", "-numa", "node,nodeid=1,cpus=2-3,memdev=m1",
    "-nographic", "-no-reboot", "-nic", "none",
    "-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
]  # fmt: skip
BEGIN = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
for module in /modules/*.ko; do insmod "$module" || echo "no module $module"; done
mount -t 9p -o trans=virtio,version=9p2000.L,cache=loose,msize=512000,ro host /host
mount -t proc proc /host/proc
mount -t sysfs sys /host/sys
mount -t devtmpfs dev /host/dev
mount -t tmpfs run /host/run
mkdir /host/run/tmp
mount -t cgroup2 cgroup /host/sys/fs/cgroup
ip link set lo up
echo 1 > /proc/sys/kernel/printk
chroot /host /bin/sh -c {command}
echo {done} $?
poweroff -f
"""


def main() -> None:
    """Run the tests in the machine; exit as they did."""
    CACHE.mkdir(parents=True, exist_ok=True)
    kernel, modules, busybox = _unpacked()
    arguments = sys.argv[1:] or TESTS
    words = ["-q", "-n", "0", "-p", "no:cacheprovider", "--basetemp=/run/tmp/pytest", *arguments]
    tests = shlex.join([sys.executable, "-B", "-P", "-m", "pytest", *words])
    variables = f"cd {ROOT}; export HOME=/run TMPDIR=/run/tmp PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    command = f"{variables} PYTHONPATH={ROOT}/src HYPOTHESIS_STORAGE_DIRECTORY=/run/tmp/hypothesis; {tests}"
    first = BEGIN.format(command=shlex.quote(command), done=DONE).encode()
    files = [("bin/busybox", busybox.read_bytes()), ("init", first)]
    files += [(f"modules/{index:02}-{path.name}", path.read_bytes()) for index, path in enumerate(modules)]
    image = CACHE / "begin.cpio.gz"
    image.write_bytes(gzip.compress(_archive(("bin", "dev", "host", "modules", "proc"), files), 1))
    disk = CACHE / "disk"
    disk.write_bytes(bytes(DISK_BYTES))
    line = "console=ttyS0 quiet panic=-1 random.trust_cpu=on cgroup_no_v1=all mitigations=off"
    qemu = [
        _tool("qemu-system-x86_64"),
        *MACHINE,
        "-drive",
        f"file={disk},format=raw,if=virtio",
        "-kernel",
        str(kernel),
        "-initrd",
        str(image),
        "-append",
        line,
    ]
    sys.exit(_run(qemu))


def _run(command: list[str]) -> int:
    """Run the machine, show what it says, and return how the tests in it ended."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace") as vm:
        code = 1
        watch = threading.Timer(LIMIT_S, vm.kill)
        watch.start()
        assert vm.stdout is not None
        for line in vm.stdout:
            print(line, end="", flush=True)
            if line.startswith(DONE):
                code = int(line.split()[1])
        vm.wait()
        watch.cancel()
    return code


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        sys.exit(f"{name} is not there: it is of Debian's packages apt, dpkg and qemu-system-x86")
    return found


def _unpacked() -> tuple[Path, list[Path], Path]:
    """Return the kernel, the modules in the order in which they are needed, and busybox."""
    folder = CACHE / "unpacked"
    if not (folder / "complete").exists():
        shown = subprocess.run([_tool("apt-cache"), "depends", "linux-image-amd64"], stdout=subprocess.PIPE, check=True)
        words = shown.stdout.decode().split()
        image = next(word for word in words if word.startswith("linux-image-") and word[12].isdigit())
        subprocess.run([_tool("apt-get"), "download", image, "busybox-static"], cwd=CACHE, check=True)
        for package in CACHE.glob("*.deb"):
            subprocess.run([_tool("dpkg-deb"), "-x", package, folder], check=True)
        (folder / "complete").touch()
    places = {path.stem.replace("-", "_"): path for path in folder.glob("lib/modules/*/kernel/**/*.ko")}
    wanted: list[str] = []
    for module in MODULES:
        _add(module, places, wanted)
    return next(folder.glob("boot/vmlinuz-*")), [places[name] for name in wanted], folder / "bin/busybox"


def _add(module: str, places: dict[str, Path], wanted: list[str]) -> None:
    """Append a module after those that it says it depends on; what is built in has no file."""
    if module not in places or module in wanted:
        return
    _, _, rest = places[module].read_bytes().partition(b"\0depends=")
    for name in rest.partition(b"\0")[0].decode().split(","):
        _add(name.replace("-", "_"), places, wanted)
    wanted.append(module)


def _archive(folders: Iterable[str], files: Iterable[tuple[str, bytes]]) -> bytes:
    """Return an initial file system. Source: Documentation/driver-api/early-userspace/buffer-format.rst of Linux."""
    pieces = []
    entries = [(name, 0o040755, b"") for name in folders] + [(name, 0o100755, data) for name, data in files]
    for number, (name, mode, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        path = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + path
        pieces += [head, bytes(-len(head) % 4), data, bytes(-len(data) % 4)]
    return b"".join(pieces)


if __name__ == "__main__":
    main()
