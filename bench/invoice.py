"""Documents of an invoice with 2,000 line items, in both languages: CPU seconds for the page (HTML) and the PDF.

CPU time of this process and of those it starts, the best of three. The reference for the PDF is
the time in which WeasyPrint, where it is installed, makes one of the same page.
"""

import argparse
import gc
import importlib.util
import resource
from collections.abc import Callable

from bench.harness import result
from penstock.report.invoice import LANGUAGES, render_html, render_pdf
from tests.report.invoice.samples import month

LINES, LIMIT_S = 2_000, 3.0


def cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def best_s(work: Callable[[], object], times: int) -> float:
    found = []
    for _ in range(times):
        gc.collect()
        begun = cpu_s()
        work()
        found.append(cpu_s() - begun)
    return min(found)


def weasyprint_s(html: str) -> float | None:
    if importlib.util.find_spec("weasyprint") is None:
        return None
    from weasyprint import HTML

    return best_s(lambda: HTML(string=html).write_pdf(), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one run each")
    times = 1 if parser.parse_args().quick else 3
    invoice = month(LINES)
    for language in LANGUAGES:
        html = render_html(invoice, language)
        peer = weasyprint_s(html)
        reference = {"name": "WeasyPrint, CPU s", "value": round(peer, 2)} if peer else None
        result(
            f"invoice_html_{LINES}_lines_{language}",
            best_s(lambda language=language: render_html(invoice, language), times),
            "CPU s",
            "lower",
            LIMIT_S,
            None,
        )
        result(
            f"invoice_pdf_{LINES}_lines_{language}",
            best_s(lambda language=language: render_pdf(invoice, language), times),
            "CPU s",
            "lower",
            LIMIT_S,
            reference,
        )


if __name__ == "__main__":
    main()
