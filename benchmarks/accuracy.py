"""How often the check-up is right: on logs with labels, and on runs that are made up and broken on purpose.

    python benchmarks/accuracy.py [FOLDER] [--seeds N] [--twins N] [--others-seeds N] [--first-seed N] [--alone]

FOLDER holds logs and a MANIFEST.tsv with the columns file, label, event_step and kind (default: ../shared/data).
All is read as a user would have it read: a file of its own, the followers, the detectors, the report of ``diagnose``.

- found: a finding of the right family, of any severity.  A false alarm: a warning or a critical finding on a healthy
  log, also one that is over at the end.
- The made-up runs are of the kinds of made.py, in the forms of forms.py; each seed gives a healthy run, and that run
  with each fault that its kind can have.  So are faults written into the healthy logs of the folder.
- The healthy runs of quirks.py are those that look ill to who does not know their kind.
- delay: lines of the log from the first bad one to the one behind which the finding was known.
- trainspotter, runmedic and losslint read the same files in the same run, if they are installed, and not ``--alone``.
- Another ``--first-seed`` gives runs that no threshold was chosen on.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import others
from benchmarks.forms import write
from benchmarks.made import BLOOM, KINDS, Log, make
from benchmarks.quirks import QUIRKS
from benchmarks.quirks import write as write_quirk

from trainvitals import detect
from trainvitals.detect.engine import Outcome
from trainvitals.diagnose.read import read
from trainvitals.diagnose.report import make as report
from trainvitals.follow.follower import Follower
from trainvitals.follow.sources import Source

DEFAULT_FOLDER = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
#: The signals that a fault may be found by.
FAMILIES = {
    "nan": {"loss_nonfinite", "loss_collapsed", "evaluation_mismatch", "gradient_anomaly"},
    "collapse": {"loss_collapsed", "loss_nonfinite"},
    "spike": {"loss_spike", "loss_diverged", "loss_drift"},
    "divergence": {"loss_diverged", "loss_spike", "loss_drift"},
    "drift": {"loss_drift", "loss_diverged", "loss_spike"},
    "stuck": {"loss_not_falling", "plateau"},
    "overfit": {"overfitting"},
    "metric": {"metric_decoupled"},
    "val_nan": {"evaluation_mismatch", "loss_nonfinite"},
    "slow": {"slowdown"},
    "oscillation": {"plateau", "loss_not_falling"},
}
#: Labels of a manifest that are faults, as faults of the table above.
LABELS = {
    "nan": "nan",
    "spike": "spike",
    "spike+nan": "spike",
    "divergence": "divergence",
    "overfit": "overfit",
    "overfit_onset": "overfit",
    "plateau": "stuck",
    "hardly_falls": "stuck",
    "metric_not_improving": "metric",
    "slow": "slow",
    "collapse_to_zero": "collapse",
    "oscillation": "oscillation",
}
#: Kinds of files of a manifest that hold curves.
CURVES = {
    "hf_trainer_state", "issue_recon", "keras_csv", "lightning_csv", "llamafactory_log", "metrics_csv", "mmengine_json",
    "mmengine_log", "ms_swift_logging", "stdout_steps", "tfevents", "ultralytics_csv",
}  # fmt: skip


@dataclass
class Seen:
    """What the check-up says of one file: severities and when they were known, by signal; number of steps."""

    steps: int = 0
    found: dict[str, str] = field(default_factory=dict)
    #: The step behind which it was known first.
    known: dict[str, int] = field(default_factory=dict)

    @property
    def warnings(self) -> set[str]:
        """Signals with a warning or graver, those of errors in the log aside."""
        return {name for name, severity in self.found.items() if severity != "info" and name != "log_error"}


def see(path: Path) -> Seen:
    """Have a file checked up."""
    reading = read([str(path)], detect.build)
    seen = Seen()
    for run in report(reading).runs:
        seen.steps += run.case.steps
        seen.found.update({row.signal: row.severity for row in run.signals if row.is_finding})
        seen.known.update(_known(run.case.outcomes()))
    return seen


def _known(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """Return the step after which each signal that was on was first known."""
    return {one.signal: min(one.episodes[0].reached.values()) for one in outcomes if one.episodes}


def upper_bound(events: int, trials: float) -> float:
    """Return the upper end of the one-sided 95 % interval of a rate of rare events (Poisson, exact).

    Source: Garwood (1936), half of the quantile of chi-squared with 2 (events + 1) degrees of freedom, by bisection.
    """
    low, high = 0.0, 10.0 * (events + 3.0)
    for _ in range(80):
        middle = (low + high) / 2.0
        below = sum(math.exp(-middle + k * math.log(middle) - math.lgamma(k + 1)) for k in range(events + 1))
        low, high = (middle, high) if below > 0.05 else (low, middle)
    return high / trials if trials else math.inf


@dataclass
class Count:
    """Of one signal or fault: how many there were and were found, wrong alarms, and delays in lines."""

    there: int = 0
    found: int = 0
    wrong: int = 0
    delays: list[int] = field(default_factory=list)

    def row(self) -> str:
        """Return recall, precision and delay as cells."""
        recall = f"{self.found} of {self.there}" if self.there else "-"
        alarms = self.found + self.wrong
        precision = f"{self.found / alarms:.3f}" if alarms else "-"
        delay = (
            f"{median(self.delays):g}, {sorted(self.delays)[int(0.95 * (len(self.delays) - 1))]}"
            if self.delays
            else "-"
        )
        return f"{recall:>14} {self.found / self.there if self.there else math.nan:>7.3f} {precision:>9} {delay:>12}"


@dataclass
class Table:
    """The results of one set of files, by fault."""

    faults: dict[str, Count] = field(default_factory=lambda: defaultdict(Count))
    healthy: int = 0
    alarmed: int = 0
    steps: int = 0
    unread: int = 0
    infos: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    notes: list[str] = field(default_factory=list)
    #: The same files by others: read and found, read and warned of healthy ones.
    theirs: dict[str, list[int]] = field(default_factory=dict)

    def take_healthy(self, name: str, seen: Seen) -> None:
        """Count a healthy file."""
        self.healthy += 1
        self.steps += seen.steps
        self.unread += not seen.steps
        self.alarmed += bool(seen.warnings)
        for signal in seen.warnings:
            self.notes.append(f"false alarm: {name}: {signal}")
            for fault, family in FAMILIES.items():
                self.faults[fault].wrong += signal in family
        for signal, severity in seen.found.items():
            self.infos[signal] += severity == "info"

    def take_faulty(
        self, name: str, fault: str, seen: Seen, lines: Sequence[int] = (), onset: int | None = None
    ) -> None:
        """Count a file with a fault; ``lines`` are the steps of its lines, ``onset`` the first that is bad."""
        count = self.faults[fault]
        count.there += 1
        self.unread += not seen.steps
        right = FAMILIES[fault] & seen.found.keys()
        count.found += bool(right)
        if not right:
            self.notes.append(f"missed: {name}: {fault}")
        elif onset is not None and (known := [seen.known[signal] for signal in right if signal in seen.known]):
            count.delays.append(sum(onset <= step <= min(known) for step in lines))

    def show(self, title: str) -> None:
        """Print it."""
        print(f"\n{title}")
        print(f"  {'fault':14} {'found':>14} {'recall':>7} {'precision':>9} {'delay, p95':>12}")
        for fault, count in self.faults.items():
            if count.there or count.wrong:
                print(f"  {fault:14} {count.row()}")
        there, found = sum(c.there for c in self.faults.values()), sum(c.found for c in self.faults.values())
        precision = found / (found + self.alarmed) if found else math.nan
        print(
            f"  {'all':14} {f'{found} of {there}':>14} {found / there if there else math.nan:>7.3f} {precision:>9.3f}"
        )
        rate = self.alarmed / self.steps * 1e4 if self.steps else math.nan
        print(
            f"  healthy: {self.alarmed} of {self.healthy} with a warning, {self.steps} steps: {rate:.3f} in 10,000"
            f" (95 % below {upper_bound(self.alarmed, self.steps / 1e4):.3f}; runs: below "
            f"{upper_bound(self.alarmed, self.healthy):.4f}); not read: {self.unread}"
        )
        told = ", ".join(f"{signal} {count}" for signal, count in sorted(self.infos.items()) if count)
        print(f"  information on healthy runs, no alarm: {told or 'none'}")
        for name, (read_faulty, hits, read_healthy, alarmed) in self.theirs.items():
            print(
                f"  {name}: read {read_faulty} of {there} with a fault and found {hits}; "
                f"read {read_healthy} of {self.healthy} healthy and warned of {alarmed}"
            )

    def ask_others(self, files: Sequence[tuple[Path, str]]) -> None:
        """Have the same files read by the others; "" is the fault of a healthy one."""
        for name in others.installed():
            counts = [0, 0, 0, 0]
            for (_, fault), answer in zip(files, others.ask(name, [str(path) for path, _ in files]), strict=True):
                place = 0 if fault else 2
                counts[place] += answer.read
                counts[place + 1] += answer.read and (fault in answer.about if fault else answer.warns)
            self.theirs[name] = counts


def labelled(folder: Path, *, alone: bool = False) -> Table:
    """Look at the logs of a manifest; ``alone``: do not ask the others."""
    table = Table()
    files: list[tuple[Path, str]] = []
    with (folder / "MANIFEST.tsv").open() as manifest:
        rows = list(csv.DictReader(manifest, delimiter="\t", quoting=csv.QUOTE_NONE))
    for row in rows:
        path, label = folder / row["file"], row["label"]
        if row["kind"] not in CURVES or not path.exists() or (label != "healthy" and label not in LABELS):
            continue
        seen = see(path)
        if not seen.steps:
            # A traceback, samples of a device, the words of a detector: it is named, and not counted.
            table.notes.append(f"no curve in it: {row['file']} ({label})")
            continue
        if label == "healthy":
            table.take_healthy(row["file"], seen)
            files.append((path, ""))
        else:
            table.take_faulty(f"{row['file']} ({label})", LABELS[label], seen)
            files.append((path, LABELS[label]))
    if not alone:
        table.ask_others(files)
    return table


def made(
    seeds: int, twins: int, others_seeds: int, folder: Path, *, first: int = 0, only: str = ""
) -> tuple[Table, dict[str, Count]]:
    """Look at made-up runs: ``twins`` healthy ones of each kind, and ``seeds`` with each fault, from a seed on.

    ``only``: those kinds whose name has this in it.
    """
    table = Table()
    kinds: dict[str, Count] = defaultdict(Count)
    files: list[tuple[Path, str]] = []
    for kind in (kind for kind in KINDS if only in kind.name):
        for seed in range(first, first + max(seeds, twins)):
            number = seed - first
            faults = kind.faults if number < seeds else ()
            for fault in ("healthy", *faults) if number < twins else faults:
                log = make(kind, seed, fault)
                if not _carries(log):
                    continue
                keep = number < others_seeds
                path = _save(log, folder / (f"{len(files)}" if keep else "now"))
                seen, name = see(path), f"{kind.name}, {log.form}, seed {seed}"
                if fault == "healthy":
                    table.take_healthy(name, seen)
                    kinds[kind.name].wrong += bool(seen.warnings)
                else:
                    table.take_faulty(name, fault, seen, [step for step, _ in log.train], log.onset)
                    kinds[kind.name].there += 1
                    kinds[kind.name].found += bool(FAMILIES[fault] & seen.found.keys())
                if keep:
                    files.append((path, "" if fault == "healthy" else fault))
    if files:
        table.ask_others(files)
    return table, kinds


def odd(twins: int, folder: Path, first: int = 0) -> Table:
    """Look at healthy runs of odd kinds, so many of each, from a seed on."""
    table = Table()
    for name in QUIRKS:
        for seed in range(first, first + twins):
            file, text = write_quirk(name, seed)
            path = folder / "odd" / file
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            table.take_healthy(f"{name}, {file}, seed {seed}", see(path))
    return table


def _carries(log: Log) -> bool:
    """Whether a log has what its fault is a fault of: evaluations, and enough of them."""
    if log.fault == "metric":
        return sum(bool(values.keys() - {"loss"}) for _, values in log.evaluations) >= 8
    if log.fault in {"overfit", "val_nan"}:
        return sum("loss" in values for _, values in log.evaluations) >= 8
    return True


def _save(log: Log, folder: Path) -> Path:
    name, text = write(log)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text)
    return path


def real_bases(folder: Path) -> Iterator[tuple[str, list[tuple[int, float, float | None]]]]:
    """Yield the healthy curves of a manifest of 100 positive losses and more: steps, losses and learning rates."""
    with (folder / "MANIFEST.tsv").open() as manifest:
        rows = list(csv.DictReader(manifest, delimiter="\t", quoting=csv.QUOTE_NONE))
    for row in rows:
        path = folder / row["file"]
        if row["label"] != "healthy" or row["kind"] not in CURVES or not path.exists():
            continue
        follower = Follower([Source(str(path))], rate=math.inf)
        for run in follower.poll(final=True):
            points = [
                (step.step, step.values["loss"], step.values.get("learning_rate"))
                for step in run.steps
                if math.isfinite(step.values.get("loss", math.nan))
            ][:30_000]
            if len(points) >= 100 and all(loss > 0.0 for _, loss, _ in points):
                yield row["file"], points
        follower.close()


def into_real(folder: Path, temporary: Path) -> Table:
    """Write faults into the healthy curves of a manifest, three places each; the curves themselves are the twins."""
    table = Table()
    for name, points in real_bases(folder):
        for fault in ("healthy", "nan", "spike", "divergence", "drift"):
            dense = len(points) >= 1000 and points[-1][0] - points[0][0] <= 2 * len(points)
            if fault in {"spike", "drift"} and not dense:
                continue
            for place in (0.5,) if fault == "healthy" else (0.45, 0.6, 0.75):
                at = int(place * len(points)) if fault not in {"spike", "drift"} else max(int(place * len(points)), 720)
                if at > len(points) - (440 if fault == "drift" else 20):
                    continue
                path = temporary / "real" / "log.csv"
                path.parent.mkdir(exist_ok=True)
                path.write_text("step,lr,loss\n" + "\n".join(_broken(points, fault, at)) + "\n")
                seen = see(path)
                if fault == "healthy":
                    table.take_healthy(name, seen)
                else:
                    table.take_faulty(name, fault, seen, [step for step, _, _ in points], points[at][0])
    return table


def _broken(points: Sequence[tuple[int, float, float | None]], fault: str, at: int) -> Iterator[str]:
    level = median(loss for _, loss, _ in points[max(0, at - 20) : at])
    for place, (step, loss, rate) in enumerate(points):
        since = place - at
        value = loss
        if since >= 0:
            if fault == "nan":
                value = math.nan
            elif fault == "spike" and since < len(BLOOM):
                value = loss * BLOOM[since]
            elif fault == "divergence":
                value = loss / level * level * (1.0 + 2.0 * (1.0 - math.exp(-(since + 1) / 4.0)))
            elif fault == "drift":
                value = loss * (1.0 + 0.3 * min(1.0, since / 400.0))
        yield f"{step},{'' if rate is None else rate},{value:.6g}"


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--seeds", type=int, default=10, help="made-up runs of each kind with each fault")
    parser.add_argument("--twins", type=int, default=110, help="healthy made-up runs of each kind")
    parser.add_argument("--others-seeds", type=int, default=2, help="seeds of made-up runs that the others read too")
    parser.add_argument("--first-seed", type=int, default=0, help="the seed of the first made-up run of each kind")
    parser.add_argument("--only", default="", help="made-up runs alone, of kinds whose name has this in it")
    parser.add_argument("--alone", action="store_true", help="do not run the others")
    options = parser.parse_args()
    found = "" if options.alone else ", ".join(f"{name} {version}" for name, version in others.installed().items())
    print(f"read by others: {found or 'none'}")
    with tempfile.TemporaryDirectory(prefix="accuracy-") as temporary:
        if not options.only and (options.folder / "MANIFEST.tsv").is_file():
            table = labelled(options.folder, alone=options.alone)
            table.show(f"logs with labels, {options.folder}")
            print("".join(f"    {note}\n" for note in table.notes), end="")
            table = into_real(options.folder, Path(temporary))
            table.show("faults written into the healthy ones of these logs")
            print("".join(f"    {note}\n" for note in table.notes[:40]), end="")
        if not options.only:
            table = odd(options.twins, Path(temporary), options.first_seed)
            table.show("healthy runs of odd kinds, made up")
            print("".join(f"    {note}\n" for note in table.notes[:60]), end="")
        others_seeds = 0 if options.alone else options.others_seeds
        table, kinds = made(
            options.seeds,
            options.twins,
            others_seeds,
            Path(temporary),
            first=options.first_seed,
            only=options.only,
        )
        table.show("made-up runs")
        print("".join(f"    {note}\n" for note in table.notes[:60]), end="")
        print("\n  by kind                          found  healthy with a warning")
        for name, count in kinds.items():
            print(f"  {name:32} {count.found:>3} of {count.there:<4} {count.wrong:>3}")


if __name__ == "__main__":
    main()
