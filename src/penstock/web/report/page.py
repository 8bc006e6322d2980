from penstock.web.report.model import Report


def render(report: Report) -> str:
    return ""
