"""The programs that are named as Slurm's: they become commands of ours."""

import sys


def main() -> None:
    """Run the command that the first word names, with the words after it; ends the process."""
    from penstock.cli.main import main as run

    if sys.argv[1] != "sbatch":
        sys.argv.insert(1, "slurm")
    run()
    sys.exit(0)
