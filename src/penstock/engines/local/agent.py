"""Forwards to the node agent: agents and servers of former versions start it by this name.

A running agent of a former version replaces itself by `python -m penstock.engines.local.agent` when the package on disk
is newer than itself.
"""

from penstock.engines.agent.guardian import main

if __name__ == "__main__":
    main()
