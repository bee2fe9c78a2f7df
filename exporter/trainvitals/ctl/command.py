"""``trainvitals ctl RUN ...``: change a setting of a run that goes on, pause it, save it, stop it.

All ranks obey behind the same step, or none does.  Who may: the user of the training and root, by the permissions of
the files.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from trainvitals.ctl.clone import plan
from trainvitals.ctl.remote import Node
from trainvitals.ctl.several import Several
from trainvitals.ctl.supervised import Supervised
from trainvitals.orders import in_words
from trainvitals.output import printable
from trainvitals.probe import spool
from trainvitals.steer.giving import Done, Giver, NotDoneError, whoever
from trainvitals.steer.ranks import Rank, live
from trainvitals.steer.steering import WHAT, check_whole, own
from trainvitals.supervise import wishes
from trainvitals.supervise.options import count, span
from trainvitals.supervise.wishes import Wish

#: Words that are values of their own; everything else that is no number is a text.
_WORDS = {"true": True, "false": False, "on": True, "off": False}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    described = argparse.ArgumentParser(
        prog="trainvitals ctl",
        description="Act on a run that goes on: all ranks obey behind the same step, or none does.",
    )
    described.add_argument("--dir", metavar="FOLDER", help="the spool [default: TRAINVITALS_DIR, or that of this user]")
    described.add_argument(
        "--patience", type=_seconds, default=60.0, metavar="SECONDS", help="how long a rank may be silent [default: 60]"
    )
    described.add_argument(
        "--part", action="store_true", help="also where only a part of the ranks lives here: the others go on as before"
    )
    described.add_argument("--state-dir", metavar="FOLDER", help="that of the run's supervisor, if it was given one")
    described.add_argument(
        "--node",
        action="append",
        metavar="URL",
        help="give it through the exporter there: https://host:20910; one for each node that has ranks of the run",
    )
    described.add_argument("--token-file", metavar="FILE", help="the token that the exporter of that node wants")
    described.add_argument("--ca-file", metavar="FILE", help="who signed the certificate of that node")
    described.add_argument("--json", action="store_true", help="print JSON")
    described.add_argument("run", metavar="RUN", help="name of the run")
    orders = described.add_subparsers(dest="order", required=True, metavar="ORDER")
    setting = orders.add_parser("set", help="change settings that the training has declared: set lr=1e-4")
    setting.add_argument("values", nargs="+", type=_assignment, metavar="NAME=VALUE")
    pause = orders.add_parser("pause", help="hold all ranks behind a step, with their devices")
    pause.add_argument(
        "--release", action="store_true", help="save, end all processes and free the devices; the supervisor waits"
    )
    orders.add_parser("resume", help="let them go on")
    back = orders.add_parser("rollback", help="go on from the newest checkpoint of a step or before (supervised runs)")
    back.add_argument("step", type=count, metavar="STEP")
    clone = orders.add_parser("clone", help="start another run from a checkpoint of this one, with other settings")
    clone.add_argument("name", metavar="NAME")
    clone.add_argument("values", nargs="*", type=_assignment, metavar="NAME=VALUE")
    clone.add_argument("--before", type=count, metavar="STEP", help="from a checkpoint before this step")
    clone.add_argument("--print", action="store_true", dest="only_print", help="print the command, and start nothing")
    scale = orders.add_parser("scale", help="save, and go on with so many processes per node (supervised runs)")
    scale.add_argument("processes", type=_span, metavar="N|MIN:MAX")
    orders.add_parser("checkpoint", help="let the training save itself")
    stop = orders.add_parser("stop", help="end the training behind a step")
    stop.add_argument("--checkpoint", action="store_true", help="let it save itself before")
    orders.add_parser("status", help="show its ranks, and do nothing")
    return described


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.0 < value < 1e6:
        raise argparse.ArgumentTypeError("expected seconds above 0")
    return value


def _span(text: str) -> tuple[int, int]:
    return span(text if ":" in text else f"{text}:{text}")


def _assignment(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, found {text!r}")
    return name.strip(), _value(value.strip())


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def main(arguments: Sequence[str], environ: dict[str, str]) -> int:
    """Give the order; return 0 when it was obeyed, 1 when not, 2 for one that makes no sense."""
    options = _parse(arguments)
    try:
        done = _give_here(options, environ) if options.node is None else _give_elsewhere(options)
    except NotDoneError as error:
        print(f"trainvitals ctl: {printable(str(error))}", file=sys.stderr)
        return 1
    if done is not None:
        _show(done, as_json=options.json)
    return 0


def _give_here(options: argparse.Namespace, environ: dict[str, str]) -> Done | None:
    """Act on a run of this machine; return what the ranks said, None where it is not they that were asked."""
    folder = options.dir or spool.folder(environ)
    ranks = own(live(folder, options.run))
    state = options.state_dir or wishes.folder_of(options.run, environ)
    supervisor = Supervised(options.run, state)
    if options.order == "clone":
        _clone(options, state, environ)
        return None
    if options.order == "resume" and not ranks and supervisor.is_released:
        supervisor.resume()
        print(f"{printable(options.run)}: resume: left for the supervisor")
        return None
    if not ranks:
        raise NotDoneError(_nobody(folder, options.run))
    if options.order == "status":
        _show_status(ranks, as_json=options.json)
        return None
    check_whole(ranks, part=options.part)
    with contextlib.closing(Giver(folder, options.run, ranks, patience=options.patience)) as giver:
        if (wish := _wish(options)) is not None:
            return supervisor.end(giver, wish)
        return giver.give(options.order, _values(options))


def _give_elsewhere(options: argparse.Namespace) -> Done:
    nodes = [Node(url, options.token_file, options.ca_file) for url in options.node]
    giver = nodes[0] if len(nodes) == 1 else Several(nodes)
    return giver.give(options.run, options.order, _values(options), part=options.part)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse; settings may stand before and behind options, which argparse alone does not allow."""
    described = parser()
    options, rest = described.parse_known_args(arguments)
    if rest and options.order in {"set", "clone"} and all("=" in word and not word.startswith("-") for word in rest):
        options.values = [*options.values, *map(_assignment, rest)]
    elif rest:
        described.error(f"unrecognized arguments: {' '.join(rest)}")
    _check_node(described, options)
    return options


def _check_node(described: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with status 2 for options that do not go with an order to another machine, or with one to this one."""
    if options.node is None:
        if options.token_file or options.ca_file:
            described.error("--token-file and --ca-file need --node")
    elif not options.token_file:
        described.error("--node needs --token-file")
    elif options.order not in WHAT or getattr(options, "release", False):
        described.error(f"only on the machine of the run; through an exporter: {', '.join(WHAT)}")


def _values(options: argparse.Namespace) -> dict[str, Any]:
    if options.order == "set":
        return dict(options.values)
    return {"checkpoint": True} if options.order == "stop" and options.checkpoint else {}


def _wish(options: argparse.Namespace) -> Wish | None:
    """Return what the supervisor of the run is to do behind its end; None for an order to the ranks alone."""
    known: dict[str, Any] = {"by": whoever(), "time": time.time()}
    if options.order == "pause" and options.release:
        return Wish(what="release", **known)
    if options.order == "rollback":
        return Wish(what="rollback", step=options.step, **known)
    if options.order == "scale":
        least, most = options.processes
        return Wish(what="scale", least=least, most=most, **known)
    return None


def _clone(options: argparse.Namespace, folder: str, environ: Mapping[str, str]) -> None:
    """Become the clone, or print what it would be; return only then."""
    planned = plan(options.run, options.name, folder, dict(options.values), options.before)
    command = [sys.executable, "-m", "trainvitals", *planned.arguments]
    if not options.only_print:
        sys.stdout.flush()
        os.execve(sys.executable, command, {**environ, **planned.environ})  # noqa: S606
    print(shlex.join([*(f"{name}={value}" for name, value in planned.environ.items()), *command]))


def _nobody(folder: str, run: str) -> str:
    known = sorted({rank.run for rank in live(folder)})
    there = f"runs there: {', '.join(known)}" if known else "no run lives there"
    return f"no rank of {run} lives in {folder}; {there}"


def _show_status(ranks: Sequence[Rank], *, as_json: bool) -> None:
    rows = [{"rank": rank.rank, "step": rank.step, "phase": rank.phase} for rank in ranks]
    if as_json:
        print(json.dumps({"run": ranks[0].run, "ranks": rows}))
        return
    for row in rows:
        print(f"rank {row['rank']}: step {row['step']}, {row['phase']}")


def _show(done: Done, *, as_json: bool) -> None:
    order = done.order
    if as_json:
        ranks = [{"rank": rank, "step": said.step, "text": said.text} for rank, said in done.answers.items()]
        print(
            json.dumps(
                {"run": order.run, "order": order.number, "what": order.what, "values": order.values, "ranks": ranks}
            )
        )
        return
    steps = sorted({said.step for said in done.answers.values()})
    words = in_words(order.what, order.values)
    where = ", ".join(map(str, steps))
    print(f"{printable(order.run)}: {printable(words)}: done behind step {where} by {len(done.answers)} ranks")
    for text in sorted({said.text for said in done.answers.values() if said.text}):
        print(f"  {printable(text)}")
