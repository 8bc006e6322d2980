"""Forwards to `engines.processes.selfcheck`: a running agent of a former version starts it by this name."""

from penstock.engines.processes.selfcheck import main

if __name__ == "__main__":
    main()
