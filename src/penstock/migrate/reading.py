"""Reads a text file within limits: a configuration is small, so a larger file is not one."""

from pathlib import Path

from penstock.migrate.errors import ImportFault

FILE_BYTES_MAX = 16 * 2**20
FILES_MAX = 1_000
LINE_CHARACTERS_MAX = 1_000_000


def read_text(path: Path, *, bytes_max: int = FILE_BYTES_MAX) -> str:
    """Return the text of a UTF-8 file, without a byte-order mark.

    Raises: ImportFault for a file that is missing, not a plain file, above `bytes_max`, or not UTF-8 text.
    """
    name = str(path)
    try:
        if not path.is_file():
            raise ImportFault(name, expected="a readable plain file", hint="check the path")
        with path.open("rb") as stream:
            raw = stream.read(bytes_max + 1)
    except (OSError, ValueError) as error:
        raise ImportFault(name, expected=f"a readable plain file ({error})", hint="check the path") from error
    if len(raw) > bytes_max:
        raise ImportFault(name, expected=f"a file of at most {bytes_max} bytes", hint="split it")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        found = raw[error.start : error.start + 8].hex(" ")
        raise ImportFault(name, line=line, value=found, expected="UTF-8 text", hint="convert it with iconv") from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ImportFault(name, line=line, value="NUL", expected="text without NUL characters")
    return text
