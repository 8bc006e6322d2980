"""The run report: a pure fold of the log, and one HTML page that shows it without a network or a server.

report = build(records, until_ms)
page, numbers = render(report), summary(report)
"""

from penstock.report.run.build import build
from penstock.report.run.model import RunReport
from penstock.report.run.page import render
from penstock.report.run.summary import summary

__all__ = ["RunReport", "build", "render", "summary"]
