"""Pieces of a file of lines that stand for all of it, where it is too long to be read whole."""


def even_pieces(size: int, most_bytes: int, piece_bytes: int) -> list[tuple[int, int]]:
    """Return (offset, length) of pieces that are evenly spread over a file, its beginning and its end among them.

    Args:
        size: bytes of the file.
        most_bytes: of all pieces together; a file that is no longer is one piece.
        piece_bytes: of one piece.
    """
    if size <= most_bytes:
        return [(0, size)] if size > 0 else []
    count = most_bytes // piece_bytes
    if count < 2:
        return [(size - most_bytes, most_bytes)]
    return [(i * (size - piece_bytes) // (count - 1), piece_bytes) for i in range(count)]


def whole_lines(piece: bytes, *, from_start: bool) -> bytes:
    """Return the lines that a piece has whole, each with its end; `from_start`: it begins with a line."""
    begin = 0 if from_start else piece.find(b"\n") + 1
    if not from_start and begin == 0:
        return b""
    return piece[begin : piece.rfind(b"\n") + 1]
