"""Counts with the right plural, for every message."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return `1 job`, `2 jobs`, `1,200 jobs`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def agree(text: str, number: int) -> str:
    """Return a text that begins with the plural of a verb, such as `have failed devices`, as it follows `number`."""
    if number != 1:
        return text
    for plural, singular in (("have ", "has "), ("are ", "is "), ("belong ", "belongs "), ("do not", "does not"),
                             ("take ", "takes "), ("come", "comes"), ("declare ", "declares "),
                             ("go ", "goes ")):  # fmt: skip
        if text.startswith(plural):
            return singular + text[len(plural) :]
    return text
