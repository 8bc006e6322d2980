"""python -P -m penstock.report.invoice.printer: a page on stdin, a PDF on stdout; alone in a process, see `paper`.

In: JSON with `html`, `author`, `issued` (ISO 8601), `fonts` (folders). Out: a JSON text of the characters that no font
has, a newline, and the PDF. The page cannot fetch anything.
"""

import gc
import io
import json
import sys

import plutoprint

from penstock.report.invoice.fonts import FAMILY, faces

_CELL = 24
_ROW = 32
_NOT_A_CHARACTER = "\u0378"
"""Not assigned: its glyph is drawn for every character that no font has."""


class _NothingFetched(plutoprint.ResourceFetcher):
    def fetch_url(self, url: str) -> plutoprint.ResourceData:
        raise PermissionError(url)


def main() -> None:
    gc.disable()  # a short life; collections took a third of the time
    order = json.load(sys.stdin.buffer)
    html = order["html"]
    font = faces(order["fonts"], set(html))
    missing = without_font(set(html), font)
    if missing & set("Aa1"):
        sys.exit("no font is installed: apt-get install fonts-noto-cjk, or any other font")
    html = html.translate({ord(c): "?" for c in missing})
    book = plutoprint.Book(plutoprint.PAGE_SIZE_A4, plutoprint.PAGE_MARGINS_NONE, plutoprint.MEDIA_TYPE_PRINT)
    book.custom_resource_fetcher = _NothingFetched()
    book.load_html(html.replace("<style>", f"<style>{font}", 1))
    book.set_metadata(plutoprint.PDF_METADATA_AUTHOR, order["author"])
    book.set_metadata(plutoprint.PDF_METADATA_CREATOR, "Penstock")
    book.set_metadata(plutoprint.PDF_METADATA_CREATION_DATE, order["issued"])
    book.set_metadata(plutoprint.PDF_METADATA_MODIFICATION_DATE, order["issued"])
    pdf = io.BytesIO()
    book.write_to_pdf_stream(pdf)
    sys.stdout.buffer.write(json.dumps("".join(sorted(missing))).encode() + b"\n" + pdf.getvalue())


def without_font(characters: set[str], font: str) -> set[str]:
    """Return the characters that no font of this machine has: their glyph is that of an unassigned character."""
    asked = [_NOT_A_CHARACTER, *sorted(c for c in characters | set("Aa1") if c >= "\xa0" or c in "Aa1")]
    cells = "".join(f"<i>&#{ord(c)};</i>" for c in asked)
    style = (
        f"{font}*{{margin:0}}body{{font:16px/24px '{FAMILY}','Noto Sans SC','Source Han Sans SC',sans-serif}}"
        f"i{{font-style:normal;float:left;width:{_CELL}px;height:{_CELL}px;overflow:hidden}}"
    )
    width, height = _ROW * _CELL, -(-len(asked) // _ROW) * _CELL
    size = plutoprint.PageSize(width * plutoprint.UNITS_PX, height * plutoprint.UNITS_PX)
    book = plutoprint.Book(size, plutoprint.PAGE_MARGINS_NONE, plutoprint.MEDIA_TYPE_SCREEN)
    book.load_html(f"<style>{style}</style>{cells}")
    canvas = plutoprint.ImageCanvas(width, height)
    canvas.clear_surface(1, 1, 1)
    book.render_document(canvas)
    data, stride = bytes(canvas.get_data()), canvas.get_stride()

    def picture(index: int) -> bytes:
        row, column = divmod(index, _ROW)
        begins = ((row * _CELL + y) * stride + column * _CELL * 4 for y in range(_CELL))
        return b"".join(data[begin : begin + _CELL * 4] for begin in begins)

    none = picture(0)
    return {c for index, c in enumerate(asked) if index and picture(index) == none}


if __name__ == "__main__":
    main()
