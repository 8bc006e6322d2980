"""Where the program begins: completion is answered without loading the parser, all else by `cli/main.py`."""

import os


def main() -> None:
    """Run the program."""
    if "PENSTOCK_COMPLETE" in os.environ:
        from penstock.cli.completion import main as complete

        complete()
        return
    from penstock.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
