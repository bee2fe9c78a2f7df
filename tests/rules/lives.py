"""What becomes of an alert after it fired, made from its own firing case: its series go, come back, or go quiet."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import yaml

HERE = Path(__file__).parent
#: Seconds between scrapes, and how long a restart of an exporter takes: stale at once, and two scrapes missed.
SCRAPE = 15
GONE = 3
#: Alertmanager tells of a change at the next turn of the group: what is back before is no news (`group_interval`).
TURN = 300
#: Values at which nothing is wrong, of series that are bad from the first sample of a case on.
QUIET = {
    "trainvitals_signal_ratio": 0.0,
    "trainvitals_rank_files_rejected": 0.0,
    "trainvitals_devices_expected": 0.0,
    "trainvitals_device_source_down_info": "stale",
    "trainvitals_finding_info": "stale",
    "trainvitals_host_memory_available_bytes": 1e18,
    "trainvitals_host_filesystem_available_bytes": 1e18,
}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_NUMBER = r"[-+]?(?:NaN|Inf|\d+(?:\.\d+)?(?:e[-+]?\d+)?)"
_TOKEN = re.compile(rf"(?P<start>{_NUMBER})(?:(?P<step>[-+]\d+(?:\.\d+)?(?:e[-+]?\d+)?)?x(?P<times>\d+))?")


def seconds(text):
    """Return a duration as Prometheus writes it (2m30s) in seconds."""
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)([smhd])", str(text)))


def expand(values):
    """Return the samples that promtool makes of a line of values: a number, "_" or "stale" each."""
    samples = []
    for token in str(values).split():
        if token == "stale":
            samples.append(token)
        elif match := re.fullmatch(r"_(?:x(\d+))?", token):
            samples += ["_"] * int(match[1] or 1)
        else:
            match = _TOKEN.fullmatch(token)
            assert match, token
            start, step = float(match["start"]), float(match["step"] or 0)
            samples += [start + step * number for number in range(int(match["times"] or 0) + 1)]
    return samples


def written(samples):
    """Return samples as a line of values, with runs of the same one in short."""
    parts = []
    for sample in samples:
        text = sample if isinstance(sample, str) else repr(sample).replace("nan", "NaN").replace("inf", "Inf")
        if parts and parts[-1][0] == text and text != "stale":
            parts[-1][1] += 1
        else:
            parts.append([text, 1])
    # `0x9` would be a hexadecimal number; `0.0x9` is none.
    return " ".join(text if count == 1 else f"{text}x{count if text == '_' else count - 1}" for text, count in parts)


def longest_look_back(expression):
    """Return the seconds of the longest window or offset of an expression."""
    found = re.findall(r"\[(\w+)(?::\w*)?\]|offset (\w+)", expression)
    return max((seconds(window or offset) for window, offset in found), default=0)


@dataclass(frozen=True)
class Fires:
    """A case in which an alert fires, and the moment when it does, in seconds."""

    file: str
    case: dict
    check: dict
    moment: int

    @property
    def interval(self):
        """Seconds between samples."""
        return seconds(self.case["interval"])

    def series(self, change):
        """Return the series of the case with their samples changed: ``change(name, samples, place of the moment)``."""
        place = self.moment // self.interval
        return [
            {"series": each["series"], "values": written(change(each["series"], expand(each["values"]), place))}
            for each in self.case["input_series"]
        ]

    def then(self, series, moment, *, fires, interval=None):
        """Return the case with other series, in which the alert fires as written and later fires or does not."""
        later = {**self.check, "eval_time": f"{moment}s", "exp_alerts": self.check["exp_alerts"] if fires else []}
        checks = [{**self.check, "eval_time": f"{self.moment}s"}, later]
        return {"interval": f"{interval or self.interval}s", "input_series": series, "alert_rule_test": checks}


def firing_cases():
    """Return the cases in which each alert fires, by its name: the first moment in each case."""
    found = {}
    for path in sorted(HERE.glob("*.yml")):
        for case in yaml.safe_load(path.read_text())["tests"]:
            seen = set()
            for check in case.get("alert_rule_test", ()):
                name = check["alertname"]
                if check["exp_alerts"] and name not in seen:
                    seen.add(name)
                    found.setdefault(name, []).append(Fires(path.stem, case, check, seconds(check["eval_time"])))
    return found


def ends_by_itself(fires):
    """Return whether the case goes on to show that the alert ends while its series are still there."""
    for check in fires.case["alert_rule_test"]:
        moment = seconds(check["eval_time"])
        if check["alertname"] == fires.check["alertname"] and not check["exp_alerts"] and moment > fires.moment:
            place = moment // fires.interval
            samples = [expand(each["values"]) for each in fires.case["input_series"]]
            if any(len(each) > place and not isinstance(each[place], str) for each in samples):
                return True
    return False


def disappeared(fires, alert):
    """Return the case with every series gone after the moment; the alert ends once nothing remembers them."""
    series = fires.series(lambda _, samples, place: [*samples[: place + 1], "stale"])
    rest = longest_look_back(alert.expr) + alert.keep + 2 * TURN + 2 * fires.interval
    return fires.then(series, fires.moment + rest, fires=False)


def quiet_again(fires, alert):
    """Return the case with all well again after the moment: gauges at their first or quiet value, counters at rest."""
    rest = longest_look_back(alert.expr) + alert.keep + 2 * TURN + 2 * fires.interval
    count = rest // fires.interval + 2

    def back(name, samples, place):
        known = _until(samples, place)
        first = next((sample for sample in samples if not isinstance(sample, str)), "_")
        short = name.partition("{")[0]
        if short in QUIET:
            return [*known, *([QUIET[short]] * count if QUIET[short] != "stale" else ["stale"])]
        if short.endswith("_total"):
            return [*known, *[known[-1]] * count]
        if short.endswith("_timestamp_seconds") and not isinstance(first, str):
            # Of now again, as it was at first.
            return [*known, *(first + fires.interval * (len(known) + number) for number in range(count))]
        return [*known, *[first] * count]

    return fires.then(fires.series(back), fires.moment + rest, fires=False)


def _until(samples, place):
    """Return the samples up to a place, with gaps where they end before."""
    return [*samples[: place + 1], *["_"] * (place + 1 - len(samples))]


def _steady(samples, place):
    """Return by how much a series grows from sample to sample at a place; 0 when it does not grow evenly."""
    last = samples[max(place - 2, 0) : place + 1]
    if len(last) < 3 or any(isinstance(sample, str) for sample in last):
        return 0.0
    one, two = last[1] - last[0], last[2] - last[1]
    return two if one == two else 0.0


def restarted(fires, _alert):
    """Return the case with an exporter that restarts after the moment, while what it shows goes on as it was.

    The alert may end for a moment, but is on again before Alertmanager would tell of its end.
    """
    per_sample = max(fires.interval // SCRAPE, 1)
    after = (TURN * 2) // fires.interval + 3

    def gap(name, samples, place):
        known = _until(samples, place)
        last, steady = known[-1], _steady(known, place)
        on = [last if isinstance(last, str) else last + steady * (n + 1) for n in range(after)]
        if last == "stale":
            on = ["_"] * after
        fine = [sample for sample in [*known, *on] for _ in range(per_sample)]
        if name.startswith("ALERTS"):
            return fine
        start = (place + 1) * per_sample
        missing = [0.0] * GONE if name.startswith("up{") else ["stale", *["_"] * (GONE - 1)]
        return [*fine[:start], *missing, *fine[start + GONE :]]

    moment = (fires.moment // fires.interval + 1) * per_sample * SCRAPE + GONE * SCRAPE
    return fires.then(fires.series(gap), moment + TURN - GONE * SCRAPE - SCRAPE, fires=True, interval=SCRAPE)
