"""The command ``trainvitals``: one short function per sub-command.

Each imports what it needs when it runs, so that no command pays for another's libraries.
"""

from __future__ import annotations

import os
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from trainvitals._version import __version__

app = typer.Typer(
    name="trainvitals",
    help="The vital signs of a training run, for Prometheus, Alertmanager and Grafana.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class LogLevel(str, Enum):
    """Least severity of the lines on standard error."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"trainvitals {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of every command."""


@app.command()
def exporter(
    config_file: Annotated[str | None, typer.Option("--config.file", help="Settings in YAML.")] = None,
    web_listen_address: Annotated[
        str | None,
        typer.Option("--web.listen-address", help="Host and port to listen on. [default: :20910]"),
    ] = None,
    web_config_file: Annotated[
        str | None,
        typer.Option("--web.config.file", help="TLS and users, in the format of Prometheus' exporter-toolkit."),
    ] = None,
    collect_interval: Annotated[
        str | None,
        typer.Option("--collect.interval", help="How often the sources are read. [default: 5s]"),
    ] = None,
    spool_folders: Annotated[
        str | None,
        typer.Option("--spool.folders", help="Folders (or globs) of rank files, parted by colons."),
    ] = None,
    simulate_devices: Annotated[
        int | None,
        typer.Option("--simulate-devices", help="Show this many devices that do not exist, labelled as simulated."),
    ] = None,
    log_level: Annotated[LogLevel, typer.Option("--log.level", help="Least severity to log.")] = LogLevel.info,
) -> None:
    """Run the node exporter."""
    import logging
    import signal

    from trainvitals.config import ConfigError, load

    logging.basicConfig(
        level=log_level.value.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    flags = {
        "web.listen_address": web_listen_address,
        "web.config_file": web_config_file,
        "collect.interval": collect_interval,
        "spool.folders": spool_folders,
        "devices.simulate": simulate_devices,
    }
    try:
        from trainvitals.daemon import Exporter

        daemon = Exporter(load(config_file, os.environ, flags))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: daemon.stop())
        daemon.start()
    except ConfigError as error:
        _fail(str(error))
    except ModuleNotFoundError as error:
        _fail(f"{error.name} is missing; the exporter needs: pip install 'trainvitals[node]'")
    daemon.run()


def _print_formats(wanted: bool) -> None:
    if wanted:
        from trainvitals.follow.formats import describe

        typer.echo(describe())
        raise typer.Exit


@app.command()
def follow(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Logs, folders or globs of them.")],
    run: Annotated[str, typer.Option("--run", help="Name of the run. [default: by the place of each log]")] = "",
    format_name: Annotated[
        str, typer.Option("--format", help="Format of the logs. [default: found by what is in them]")
    ] = "",
    _formats: Annotated[
        bool, typer.Option("--formats", callback=_print_formats, is_eager=True, help="Print the formats and exit.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Read all that is there, print a summary, and end.")] = False,
    web_listen_address: Annotated[
        str | None,
        typer.Option("--listen", "--web.listen-address", help="Also answer scrapes here, as in :20910."),
    ] = None,
    collect_interval: Annotated[
        str, typer.Option("--interval", "--collect.interval", help="How often the logs are read.")
    ] = "2s",
) -> None:
    """Watch existing logs without touching the code: step, loss, time left, findings."""
    try:
        from trainvitals.config import ConfigError, load
        from trainvitals.follow.formats import why_unknown
    except ModuleNotFoundError as error:
        _fail(f"{error.name} is missing; this command needs: pip install 'trainvitals[node]'")

    if once and web_listen_address is not None:
        _fail("--once ends when all is read and answers no scrape: leave out --once, or --listen", status=2)
    if format_name and (why := why_unknown(format_name)):
        _fail(f"--format: {why}", status=2)
    flags: dict[str, object] = {
        "web.listen_address": web_listen_address,
        "collect.interval": collect_interval,
        "sources.paths": [{"path": path, "run": run, "format": format_name} for path in paths],
        # Whoever names a log wants to see it, however old it is.
        "sources.keep": "36500d",
    }
    try:
        from trainvitals import watch

        flags["collect.disable"] = list(watch.OTHERS)
        settings = load(None, {}, flags)
        if once:
            raise typer.Exit(watch.summarize(settings, sys.stdout))
        raise typer.Exit(watch.follow(settings, sys.stdout, serve=web_listen_address is not None))
    except ConfigError as error:
        _fail(str(error))
    except ModuleNotFoundError as error:
        _fail(f"{error.name} is missing; this command needs: pip install 'trainvitals[node]'")


@app.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False},
)
def diagnose(context: typer.Context) -> None:
    """Check up on finished or running runs by their logs: terminal, JSON, one HTML page."""
    # As with run.
    from trainvitals.diagnose.command import main as check_up

    raise typer.Exit(check_up(context.args))


@app.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False},
)
def backtest(context: typer.Context) -> None:
    """Say what rules for the detectors would have said on runs of the past, and when."""
    # As with run.
    from trainvitals.diagnose.backtest.command import main as test_rules

    raise typer.Exit(test_rules(context.args))


@app.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False},
)
def notify(context: typer.Context) -> None:
    """Bring Alertmanager's messages to chat robots: DingTalk, Feishu, Lark, WeCom, and by Apprise to others."""
    try:
        from trainvitals.notify.command import main as serve
    except ModuleNotFoundError as error:
        _fail(f"{error.name} is missing; the notifier needs: pip install 'trainvitals[node,notify]'")

    raise typer.Exit(serve(context.args))


@app.command()
def up(
    demo: Annotated[bool, typer.Option("--demo", help="Also train a small model, and break it after a while.")] = False,
    simulate_devices: Annotated[
        int, typer.Option("--simulate-devices", help="Show this many devices that do not exist, labelled so.")
    ] = 0,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", help="Keep Prometheus' data here. [default: a folder that is removed at the end]"),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--for", metavar="SECONDS", help="Stop after so many seconds. [default: at Ctrl-C]"),
    ] = None,
    notify_file: Annotated[
        Path | None,
        typer.Option(
            "--notify.file",
            help="Also tell chat robots, by these settings of `trainvitals notify`. "
            "[default: trainvitals/notify.yml in ~/.config or /etc, if there is one; none with --demo]",
        ),
    ] = None,
) -> None:
    """Run exporter, Prometheus and Alertmanager on this machine until Ctrl-C."""
    try:
        from trainvitals.bundle.up import run_up
    except ModuleNotFoundError as error:
        _fail(f"{error.name} is missing; this command needs: pip install 'trainvitals[node,demo]'")

    folder = None if data_dir is None else str(data_dir)
    robots = None if notify_file is None else str(notify_file)
    raise typer.Exit(
        run_up(demo=demo, simulate_devices=simulate_devices, data_dir=folder, seconds=seconds, notify_file=robots)
    )


@app.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False},
)
def run(context: typer.Context) -> None:
    """Start a training command with the probe attached; no change to its code."""
    # __main__ takes this way itself, without typer; here it is for the list of commands.
    from trainvitals.supervise.run import main as start

    raise typer.Exit(start(context.args))


@app.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False},
)
def ctl(context: typer.Context) -> None:
    """Act on a run that goes on: change a setting, pause, resume, checkpoint, stop."""
    # As above.
    from trainvitals.ctl.command import main as act

    raise typer.Exit(act(context.args, dict(os.environ)))


@app.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False},
)
def timeline(context: typer.Context) -> None:
    """Say since which step a run goes wrong, what changed then, and all that happened to it."""
    # As with run.
    from trainvitals.history.command import timeline as tell

    raise typer.Exit(tell(context.args))


@app.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False},
)
def incidents(context: typer.Context) -> None:
    """Say what interrupted runs, what it cost, where the time went, and how often to save."""
    # As with run.
    from trainvitals.history.command import incidents as tell

    raise typer.Exit(tell(context.args))


@app.command()
def doctor(
    config_file: Annotated[
        str | None, typer.Option("--config", "--config.file", help="Settings of the exporter, in YAML.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    record: Annotated[
        str | None,
        typer.Option(help="Check nothing: write what the vendors' tools say into this new folder, to send to us."),
    ] = None,
) -> None:
    """Say what can be read on this machine, what not, why, and how to fix it."""
    if record is not None:
        _record(record)
        return
    try:
        from trainvitals.doctor import report
        from trainvitals.doctor.base import here
        from trainvitals.doctor.run import examine
        from trainvitals.doctor.table import GROUPS
    except ModuleNotFoundError as error:
        _fail(f"{error.name} is missing; this command needs: pip install 'trainvitals[node]'")
    rows = examine(GROUPS, here(config_file, os.environ))
    if as_json:
        typer.echo(report.as_json(rows))
    else:
        report.show(rows, sys.stdout)
    raise typer.Exit(0 if report.is_sound(rows) else 1)


def _record(folder: str) -> None:
    from trainvitals.devices.capture import CaptureError
    from trainvitals.doctor import record

    try:
        for line in record.record(folder):
            typer.echo(line)
    except CaptureError as error:
        _fail(str(error))
    typer.echo("Look through it before you send it: names of boards, machines and people were replaced.")


@app.command()
def generate(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail when a committed file is stale.")] = False,
    root: Annotated[Path, typer.Option("--root", help="The repository.")] = Path(),
    thresholds: Annotated[
        str | None, typer.Option("--thresholds", help="Thresholds of your own, in YAML; wants --output too.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Write the alert rules into this folder, and nothing else.")
    ] = None,
) -> None:
    """Write the alert rules, dashboards and generated pages."""
    if thresholds is not None and output is None:
        _fail("--thresholds needs --output, the folder for the rules", status=2)
    try:
        from trainvitals.config import ConfigError
        from trainvitals.generate.threshold_file import load
        from trainvitals.generate.thresholds import DEFAULTS
        from trainvitals.generate.write import write, write_rules

        if output is None:
            stale = write(root, check=check)
        else:
            stale = write_rules(output, load(thresholds) if thresholds is not None else DEFAULTS, check=check)
    except ModuleNotFoundError as error:
        _fail(f"{error.name} is missing; this command needs: pip install 'trainvitals[node,generate]'")
    except ConfigError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}")
    for path in stale:
        typer.echo(f"{'stale' if check else 'written'}: {path}")
    if check and stale:
        _fail("run: trainvitals generate")


def _fail(message: str, status: int = 1) -> NoReturn:
    typer.echo(f"trainvitals: {message}", err=True)
    raise typer.Exit(status)


def main() -> None:
    """Run the command line."""
    app(prog_name="trainvitals")
