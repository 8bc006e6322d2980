"""The engines that bring agents to other machines, each with a real cluster of several nodes on this machine.

python -m bench.engines [--quick] [--only ray|pilot|pass]
"""

import argparse
import importlib

PARTS = {"ray": "engines_ray", "pilot": "engines_pilot", "pass": "engines_passing"}
"""Modules beside this one; each has `measure(quick=...)`."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs")
    parser.add_argument("--only", choices=sorted(PARTS), help="one engine")
    given = parser.parse_args()
    for name, module in PARTS.items():
        if given.only in (None, name):
            importlib.import_module(f"bench.{module}").measure(quick=given.quick)


if __name__ == "__main__":
    main()
