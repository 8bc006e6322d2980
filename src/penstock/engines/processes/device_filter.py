"""Closing device files to a control group of version 2: its program is loaded and attached by the system call bpf(2).

It stays as long as the group, without its maker. Loaded only where files are to be closed: it needs ctypes.

Source: bpf(2); include/uapi/linux/bpf.h of Linux; numbers of system calls: syscall.tbl of each architecture.
"""

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from penstock.engines.processes.device_program import device_program

_CALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "loongarch64": 280, "ppc64le": 361, "s390x": 351}
_PROG_LOAD, _PROG_ATTACH = 5, 8
_CGROUP_DEVICE_PROGRAM, _CGROUP_DEVICE_POINT = 15, 6
_ALLOW_MULTI = 2
"""Groups below may have programs, too: a file is open where all of them allow it."""
_BYTES_PER_INSTRUCTION = 8


def close_files(group: Path, closed: Iterable[str]) -> str:
    """Close device files to all processes that will be in a group; return why that cannot be done, or ''.

    Args:
        closed: as `device_program` takes them.
    """
    number = _CALL.get(os.uname().machine)
    if number is None:
        return f"not known how on {os.uname().machine}"
    try:
        program = _bpf(number, _PROG_LOAD, *_load(device_program(closed)))
        try:
            folder = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                attach = struct.pack("=IIII", folder, program, _CGROUP_DEVICE_POINT, _ALLOW_MULTI)
                _bpf(number, _PROG_ATTACH, attach)
            finally:
                os.close(folder)
        finally:
            os.close(program)
    except (OSError, ValueError) as error:
        return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    return ""


def _load(code: bytes) -> "tuple[bytes, ctypes.Array[ctypes.c_char], ctypes.Array[ctypes.c_char]]":
    """Return the arguments that load a program, and what they point to."""
    instructions, license_text = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"none")
    count = len(code) // _BYTES_PER_INSTRUCTION
    places = ctypes.addressof(instructions), ctypes.addressof(license_text)
    return struct.pack("=IIQQ", _CGROUP_DEVICE_PROGRAM, count, *places), instructions, license_text


def _bpf(number: int, command: int, arguments: bytes, *_kept: object) -> int:
    """Call bpf(2). Raises: OSError."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    given = ctypes.create_string_buffer(arguments, len(arguments))
    answer = int(call(ctypes.c_long(number), ctypes.c_int(command), given, ctypes.c_uint(len(arguments))))
    if answer < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return answer
