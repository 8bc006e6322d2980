"""Reads what operators declare in files."""

from pathlib import Path

import yaml

from penstock.core.clusterfile import ClusterFile, parse_cluster
from penstock.core.errors import InvalidInput
from penstock.extensions import installed_policies


def read_cluster_file(path: Path) -> ClusterFile:
    """Return what the cluster file declares.

    Raises: InvalidInput naming every problem.
    """
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise InvalidInput(f"{path} is no YAML: {error}") from error
    parsed, problems = parse_cluster(raw, installed_policies())
    if problems:
        raise InvalidInput(f"{path} has {len(problems)} problem(s)", problems=problems)
    return parsed
