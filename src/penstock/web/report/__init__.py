"""The run report: a pure fold of the log, and one HTML page that shows it without a network or a server.

report = build(records, until_ms)
page, numbers = render(report), summary(report)
"""

from penstock.web.report.build import build
from penstock.web.report.model import Report
from penstock.web.report.page import render
from penstock.web.report.summary import summary

__all__ = ["Report", "build", "render", "summary"]
