"""The frame of pages that need no network: style and script inside, and nothing from elsewhere."""

from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256


def document(title: str, body: Iterable[str], *, style: str, script: str) -> str:
    """Return a whole page with the parts of `body`; no script but `script` runs on it. All arguments are safe HTML."""
    allowed = b64encode(sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'"
    return (
        '<!doctype html>\n<html lang="en">'
        '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<link rel="icon" href="data:,"><title>{title}</title><style>{style}</style></head>'
        f"<body><main>{''.join(body)}</main><script>{script}</script></body></html>\n"
    )


def section(name: str, title: str, body: str) -> str:
    return f'<section aria-labelledby="h-{name}"><h2 id="h-{name}">{title}</h2>{body}</section>'


def figure(chart: str, caption: str) -> str:
    shown = f'<figcaption class="note">{caption}</figcaption>' if caption else ""
    return f'<figure><div class="wide" tabindex="0" role="region" aria-label="chart">{chart}</div>{shown}</figure>'


def legend(keys: Iterable[str]) -> str:
    """Return a row of keys, such as `tables.swatch` gives them."""
    return f'<div class="legend">{"".join(keys)}</div>'


def note(words: str) -> str:
    return f'<p class="note">{words}</p>'
