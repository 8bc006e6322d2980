"""How `make docs` builds the site from these pages. They are Markdown that also reads well where it is kept.

The order of the site is that of the lists in index.md. Nothing is loaded from elsewhere: no fonts, no scripts.
"""

import re

from docutils import nodes
from sphinx.application import Sphinx

import penstock

project = "Penstock"
author = "Penstock"
release = penstock.__version__
html_title = f"Penstock {release}"

extensions = ["myst_parser"]
root_doc = "index"
exclude_patterns = ["schema"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["penstock.css"]
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6e99", "color-brand-content": "#0b6e99"},
    "dark_css_variables": {"color-brand-primary": "#5cc3ee", "color-brand-content": "#5cc3ee"},
}
highlight_language = "none"
smartquotes = False  # `--` in prose is an option

_PAGES_OF_ROOT = {"../CONTRIBUTING.md": "contributing.md", "../CHANGELOG.md": "changelog.md"}
_LINK = re.compile(r"^- \[([^]]+)\]\(([^)#]+)\.md\)", re.MULTILINE)
_ARROW = re.compile(r"^\s*(\S+) --> (\S+?)(?:: (.+))?$")


def _contents(markdown: str) -> str:
    """Return index.md with a hidden table of contents below each heading, made of the links of its list."""
    parts = re.split(r"(?m)^(?=## )", markdown)
    for at, part in enumerate(parts[1:], 1):
        entries = [f"{title.replace('`', '')} <{page}>" for title, page in _LINK.findall(part)]
        caption = part.partition("\n")[0].removeprefix("## ")
        listed = "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *entries, "```", ""])
        parts[at] = f"{part}\n{listed}\n"
    return "".join(parts)


def _read(_app: Sphinx, page: str, source: list[str]) -> None:
    text = _contents(source[0]) if page == root_doc else source[0]
    above = "../" * page.count("/")
    for file, own in _PAGES_OF_ROOT.items():
        text = text.replace(f"]({above}{file}", f"]({above}{own}")
    source[0] = text


def _say_arrows(_app: Sphinx, tree: nodes.document) -> None:
    """Replace drawings that need a script from elsewhere (Mermaid) by what their arrows say, as a list."""
    for block in list(tree.findall(nodes.literal_block)):
        if block.get("language") == "mermaid":
            block.replace_self(_arrows(block.astext()))


def _arrows(drawing: str) -> nodes.Node:
    ways: dict[str, list[str]] = {}
    for match in filter(None, map(_ARROW.match, drawing.splitlines())):
        named = f" ({match[3].replace('_', ' ')})" if match[3] and match[3] != match[2] else ""
        ways.setdefault(match[1], []).append(match[2] + named)
    listed = nodes.bullet_list()
    for room, others in ways.items():
        said = nodes.Text(" → " + ", ".join(others))
        listed += nodes.list_item("", nodes.paragraph("", "", nodes.strong("", room), said))
    return listed


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the two changes of pages above."""
    app.connect("source-read", _read)
    app.connect("doctree-read", _say_arrows)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
