"""The command ``trainvitals``, also as ``python -m trainvitals``."""

import sys


def main() -> None:
    """Run the command line, or say in one line what it needs."""
    try:
        from trainvitals.cli import main as run  # noqa: PLC0415  A bare installation has none of its libraries.
    except ModuleNotFoundError as error:
        sys.exit(f"trainvitals: {error.name} is missing; the commands need: pip install 'trainvitals[node]'")
    run()


if __name__ == "__main__":
    main()
