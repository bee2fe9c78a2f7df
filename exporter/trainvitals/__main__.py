"""The command ``trainvitals``, also as ``python -m trainvitals``."""

import os
import sys


def main() -> None:
    """Run the command line, or say in one line what it needs."""
    if sys.argv[1:2] == ["run"]:
        # It needs no library, and must not spend its time on loading some.
        from trainvitals.supervise.run import main as start  # noqa: PLC0415

        sys.exit(start(sys.argv[2:]))
    from trainvitals.output import OutputError, give_up, guard  # noqa: PLC0415  As above.

    guard()
    try:
        try:
            _command()
        finally:
            sys.stdout.flush()
    except OutputError as error:
        give_up(error)


def _command() -> None:
    if sys.argv[1:2] == ["diagnose"]:
        # Nor this one: what reads and judges a log takes less time than typer to be imported.
        try:
            from trainvitals.diagnose.command import main as check_up  # noqa: PLC0415
        except ModuleNotFoundError as error:
            sys.exit(f"trainvitals: {error.name} is missing; this command needs: pip install 'trainvitals[node]'")
        sys.exit(check_up(sys.argv[2:]))
    if sys.argv[1:2] == ["ctl"]:
        from trainvitals.ctl.command import main as act  # noqa: PLC0415  Where a training runs, there may be no more.

        sys.exit(act(sys.argv[2:], dict(os.environ)))
    if sys.argv[1:2] in (["timeline"], ["incidents"]):
        try:
            from trainvitals.history import command  # noqa: PLC0415  As above.
        except ModuleNotFoundError as error:
            sys.exit(f"trainvitals: {error.name} is missing; this command needs: pip install 'trainvitals[node]'")
        sys.exit({"timeline": command.timeline, "incidents": command.incidents}[sys.argv[1]](sys.argv[2:]))
    if sys.argv[1:2] == ["backtest"]:
        try:
            from trainvitals.diagnose.backtest.command import main as backtest  # noqa: PLC0415  As above.
        except ModuleNotFoundError as error:
            sys.exit(f"trainvitals: {error.name} is missing; this command needs: pip install 'trainvitals[node]'")
        sys.exit(backtest(sys.argv[2:]))
    try:
        from trainvitals.cli import main as run  # noqa: PLC0415  A bare installation has none of its libraries.
    except ModuleNotFoundError as error:
        sys.exit(f"trainvitals: {error.name} is missing; the commands need: pip install 'trainvitals[node]'")
    run()


if __name__ == "__main__":
    main()
