"""All tools, by name."""

from typing import Any

from penstock.mcp import cluster_tools, job_tools, log_tools, plan_tools, write_tools
from penstock.mcp.tool import Tool

ALL: tuple[Tool[Any, Any], ...] = (
    *cluster_tools.TOOLS,
    *job_tools.TOOLS,
    *log_tools.TOOLS,
    *plan_tools.TOOLS,
    *write_tools.TOOLS,
)
BY_NAME = {tool.name: tool for tool in ALL}
