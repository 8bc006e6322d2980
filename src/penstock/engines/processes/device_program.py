"""The BPF program that keeps device files closed to a control group of version 2: made of five instructions, pure.

The kernel runs it whenever a process of the group opens or makes a device file; 0 refuses. It gets a structure of three
numbers of 32 bits: the access in the upper and the kind of file in the lower half of the first, then major and minor.

Sources: instruction set: RFC 9669, and include/uapi/linux/bpf.h of Linux, as is `struct bpf_cgroup_dev_ctx`.
"""

import struct
import sys
from collections.abc import Iterable

CLOSED_MAX = 1_000
"""Files of one program: the kernel takes 4,096 instructions from everybody who may load any."""

LOAD_WORD = 0x61  # BPF_LDX | BPF_MEM | BPF_W: destination = the 32 bits at source + offset
AND = 0x54  # BPF_ALU | BPF_AND | BPF_K: destination &= number
MOVE = 0xB7  # BPF_ALU64 | BPF_MOV | BPF_K: destination = number
JUMP_UNEQUAL = 0x55  # BPF_JMP | BPF_JNE | BPF_K: skip `offset` instructions unless destination == number
EXIT = 0x95  # BPF_JMP | BPF_EXIT: answer with register 0

_KINDS = {"b": 1, "c": 2}
_ANSWER, _CONTEXT, _KIND, _MAJOR, _MINOR = range(5)
_OFFSETS = ((_KIND, 0), (_MAJOR, 4), (_MINOR, 8))
_LOWER_HALF = 0xFFFF


def device_program(closed: Iterable[str]) -> bytes:
    """Return the instructions, 8 bytes each in this machine's byte order, that refuse some files and allow all others.

    Args:
        closed: as `c MAJOR:MINOR` or `b MAJOR:MINOR`; `*` stands for all minor numbers.
    Raises: ValueError for anything else, and for more than `CLOSED_MAX` files.
    """
    files = [_numbers(file) for file in dict.fromkeys(closed)]
    if len(files) > CLOSED_MAX:
        raise ValueError(f"{len(files)} device files are to be closed, one program takes {CLOSED_MAX}")
    code = [_instruction(LOAD_WORD, register, _CONTEXT, offset=at) for register, at in _OFFSETS]
    code.append(_instruction(AND, _KIND, number=_LOWER_HALF))
    for kind, major, minor in files:
        tests = [(_KIND, kind), (_MAJOR, major), *([(_MINOR, minor)] if minor is not None else [])]
        for index, (register, number) in enumerate(tests):
            rest = len(tests) - index + 1
            code.append(_instruction(JUMP_UNEQUAL, register, offset=rest, number=number))
        code += [_instruction(MOVE, _ANSWER, number=0), _instruction(EXIT)]
    code += [_instruction(MOVE, _ANSWER, number=1), _instruction(EXIT)]
    return b"".join(code)


def _numbers(file: str) -> tuple[int, int, int | None]:
    kind, _, rest = file.partition(" ")
    major, _, minor = rest.partition(":")
    if kind not in _KINDS or not major.isdecimal() or not (minor.isdecimal() or minor == "*"):
        raise ValueError(f"device file {file!r}, expected such as 'c 195:0'")
    return _KINDS[kind], int(major), None if minor == "*" else int(minor)


def _instruction(code: int, destination: int = 0, source: int = 0, *, offset: int = 0, number: int = 0) -> bytes:
    low, high = (destination, source) if sys.byteorder == "little" else (source, destination)
    return struct.pack("=BBhi", code, high << 4 | low, offset, number)
