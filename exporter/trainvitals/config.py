"""Settings: a YAML file, overridden by environment variables, overridden by flags.  Unknown keys are errors."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

#: `TRAINVITALS_<SECTION>_<KEY>` sets a key; these variables belong to the probe and are no settings of ours.
_PREFIX = "TRAINVITALS_"


class ConfigError(Exception):
    """A wrong setting; the message is one line that names file, key and what was expected."""


#: Flags that are not called like their key.
_FLAGS = {"devices.simulate": "--simulate-devices"}
#: Keys whose lists are parted as in PATH outside the file.
_PATHS = ("folders", "paths")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _seconds(value: object) -> object:
    """Take "5s" as well as 5, as Prometheus' own settings do."""
    if not isinstance(value, str):
        return value
    for unit, factor in _UNITS.items():
        number = value.removesuffix(unit)
        if number != value and number.replace(".", "", 1).isdigit():
            return float(number) * factor
    try:
        return float(value)
    except ValueError:
        raise ValueError('a duration such as "5s", "1m" or "0.5s"') from None


Seconds = Annotated[float, BeforeValidator(_seconds)]

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kMG]?)(i?)B?")


def _bytes(value: object) -> object:
    """Take "10MB" and "64MiB" as well as a number."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError('a number of bytes such as "500kB", "10MB" or "64MiB"')
    number, unit, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** " kMG".index(unit or " "))


Bytes = Annotated[int, BeforeValidator(_bytes), Field(ge=1000, le=10**12)]


class Section(BaseModel):
    """A part of the settings: frozen, and a key that nobody knows is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WebSettings(Section):
    """Where and how the exporter answers."""

    #: Host and port, as in ":20910", "127.0.0.1:20910" or "[::1]:20910".
    listen_address: str = ":20910"
    #: Prometheus' web configuration: TLS, client certificates, bcrypt users.
    config_file: str | None = None


class SpoolSettings(Section):
    """Where the rank files are and how long they are kept after their process ended."""

    #: Folders or globs of folders.
    folders: tuple[str, ...] = ("/dev/shm/trainvitals-*",)
    keep: Annotated[Seconds, Field(gt=0)] = 3600.0
    #: Whether the exporter removes rank files that nobody needs any more.
    remove: bool = True


class CollectSettings(Section):
    """How often sources are read."""

    interval: Annotated[Seconds, Field(ge=0.1, le=60)] = 5.0
    #: A source that takes longer counts as failed for this round.
    timeout: Annotated[Seconds, Field(ge=0.1, le=60)] = 4.0
    #: Series of one collector beyond this are dropped and counted.
    series_limit: Annotated[int, Field(ge=100, le=1_000_000)] = 20_000
    #: Collectors that are switched off: ranks, logs, devices, faults, host, processes, attribution, storage, network,
    #: kernel, journal.
    disable: tuple[str, ...] = ()


class DeviceSettings(Section):
    """How accelerators are read."""

    interval: Annotated[Seconds, Field(ge=0.1, le=60)] = 2.0
    #: Without an answer for so long a device counts as hung: the others are read on without it.
    hung_after: Annotated[Seconds, Field(ge=1, le=600)] = 20.0
    #: A device that hangs is tried again after so long, and after twice as long each time up to the longest.
    retry_first: Annotated[Seconds, Field(ge=1, le=86400)] = 30.0
    retry_longest: Annotated[Seconds, Field(ge=1, le=86400)] = 600.0
    #: How many devices should be here; by default as many as are on the PCI bus.
    expected: Annotated[int, Field(ge=0, le=1024)] | None = None
    #: While this file exists nobody holds the driver: it can be unloaded, and a device be reset.  Empty: never.
    pause_file: str = "/run/trainvitals-devices.pause"
    #: So many devices that do not exist, labelled as simulated.
    simulate: Annotated[int, Field(ge=0, le=64)] = 0


def _rates(value: object) -> object:
    """Take "mlx5_*=400,eth0=100" as well as a mapping."""
    if not isinstance(value, str):
        return value
    pairs = [item.partition("=") for item in value.split(",") if item]
    if not all(pattern and rate for pattern, _, rate in pairs):
        raise ValueError('patterns and rates such as "mlx5_*=400,eth0=100"')
    return {pattern: rate for pattern, _, rate in pairs}


class NetworkSettings(Section):
    """Which links are read, and how fast they should be."""

    #: Patterns of RDMA devices and network interfaces; of what they match no file is opened.
    exclude: tuple[str, ...] = ()
    #: Patterns of RDMA devices and network interfaces, and their rate in Gb/s; the first that matches counts.
    expected_rate: Annotated[dict[str, Annotated[float, Field(gt=0, le=100_000)]], BeforeValidator(_rates)] = {}
    #: Whether virtual functions of network cards are read too.
    virtual_functions: bool = False
    #: Where the kernel's devices are: in a container, where the host's /sys is mounted.
    sysfs: Annotated[str, Field(min_length=1)] = "/sys"


class StorageSettings(Section):
    """Which file systems are shown, and how they are probed.  Patterns are globs of mount points; * crosses slashes."""

    interval: Annotated[Seconds, Field(ge=1, le=3600)] = 15.0
    #: A probe that has not come back for so long makes its file system stuck.
    timeout: Annotated[Seconds, Field(ge=0.5, le=600)] = 10.0
    #: Shown besides network file systems, block devices, the root and /dev/shm.
    include: tuple[str, ...] = ()
    #: Never touched; wins over include.
    exclude: tuple[str, ...] = ()
    #: Whose first entry is read by each probe.
    read: tuple[str, ...] = ()
    #: Where each probe writes a file of 4 KiB, reads it and removes it.
    write: tuple[str, ...] = ()
    #: File systems beyond so many are counted only.
    limit: Annotated[int, Field(ge=1, le=1000)] = 50


class KernelSettings(Section):
    """How the kernel's log is read."""

    #: The device, or another file of its format.
    path: Annotated[str, Field(min_length=1)] = "/dev/kmsg"


class AttributionSettings(Section):
    """How devices are mapped to jobs."""

    #: Where a prolog of Slurm writes a file for each job; read only if it belongs to root, who alone may write.
    slurm_folder: str = "/run/trainvitals/slurm"


class LogSettings(Section):
    """Logs that are followed: a file, a folder or a glob of them."""

    path: Annotated[str, Field(min_length=1)]
    #: The name of the run; by default taken from the place of each log.
    run: str = ""
    #: One of trainvitals.follow.formats; by default found by what is in the file.
    format: str = ""


def _log(value: object) -> object:
    """Take a path as well as a section."""
    if isinstance(value, (dict, LogSettings)):
        return value
    if isinstance(value, str):
        return {"path": value}
    raise ValueError('a path such as "/logs/*.log", or a section with a path')


class SourcesSettings(Section):
    """Existing logs that are followed; in the file also written as a list of paths."""

    paths: tuple[Annotated[LogSettings, BeforeValidator(_log)], ...] = ()
    #: Bytes per second that are read of all at most, so that a large log does not take a core from the training.
    rate: Bytes = 1 << 24
    #: How long a log that ended or went silent is shown.
    keep: Annotated[Seconds, Field(gt=0)] = 86400.0
    #: Where it is remembered how far each log was read, and what the detectors know.  Empty: the service manager's
    #: STATE_DIRECTORY, else $XDG_STATE_HOME/trainvitals, else ~/.local/state/trainvitals.
    state_folder: str = ""


class JournalSettings(Section):
    """What is remembered of runs and of the node (``trainvitals timeline``, ``trainvitals incidents``)."""

    #: Whether anything is.
    enabled: bool = True
    #: The file.  Empty: ``journal.db`` in ``sources.state_folder``, with the name of the node in a user's home.
    path: str = ""
    #: How long.
    keep: Annotated[Seconds, Field(ge=3600)] = 90 * 86400.0
    #: Beyond this the oldest entries are removed.
    size: Annotated[Bytes, Field(ge=1_000_000)] = 1 << 28


class PolicySettings(Section):
    """An order that the exporter gives by itself, when a signal has been on for so long, and not as information."""

    signal: str
    order: Literal["stop", "pause", "checkpoint"]
    #: Whether the training saves itself before it stops.
    checkpoint: bool = False
    after: Annotated[Seconds, Field(ge=0, le=30 * 86400.0)] = 600.0

    @model_validator(mode="after")
    def _together(self) -> PolicySettings:
        if self.checkpoint and self.order != "stop":
            raise ValueError("checkpoint: true with the order stop only")
        return self


def _policies(value: object) -> object:
    """Take YAML as a text as well as a list."""
    if not isinstance(value, str):
        return value
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError:
        raise ValueError('a list such as "[{signal: stop_loss, order: stop}]"') from None


class OrdersSettings(Section):
    """Orders to runs that the exporter takes from elsewhere, or gives by itself.  Off by default."""

    #: The file with the token of whoever may give orders.  Empty: nobody may.
    token_file: str = ""
    policies: Annotated[list[PolicySettings], BeforeValidator(_policies)] = []


class DetectorsSettings(Section):
    """What the detectors go by: signals with their settings, as :mod:`trainvitals.detect.rules` reads them."""

    model_config = ConfigDict(extra="allow", frozen=True)


class Settings(Section):
    """All settings of the exporter."""

    web: WebSettings = WebSettings()
    spool: SpoolSettings = SpoolSettings()
    collect: CollectSettings = CollectSettings()
    devices: DeviceSettings = DeviceSettings()
    network: NetworkSettings = NetworkSettings()
    storage: StorageSettings = StorageSettings()
    attribution: AttributionSettings = AttributionSettings()
    sources: SourcesSettings = SourcesSettings()
    kernel: KernelSettings = KernelSettings()
    journal: JournalSettings = JournalSettings()
    orders: OrdersSettings = OrdersSettings()
    detectors: DetectorsSettings = DetectorsSettings()


def load(path: str | None, environ: Mapping[str, str], flags: Mapping[str, Any]) -> Settings:
    """Return the settings.  ``flags`` maps "section.key" to a value; None means not given.

    Raises ConfigError with one line.
    """
    document = read_sections(path, "web: and collect:") if path else {}
    if isinstance(document.get("sources"), list):
        document["sources"] = {"paths": document["sources"]}
    origin: dict[str, str] = {}
    if environ.get("TRAINVITALS_DIR"):
        _set(document, "spool.folders", [environ["TRAINVITALS_DIR"]], origin, "environment variable TRAINVITALS_DIR")
    for name, section in Settings.model_fields.items():
        for key in section.annotation.model_fields:  # type: ignore[union-attr]
            variable = f"{_PREFIX}{name}_{key}".upper()
            if variable in environ:
                _set(document, f"{name}.{key}", environ[variable], origin, f"environment variable {variable}")
    for key, value in flags.items():
        if value is not None:
            _set(document, key, value, origin, f"flag {_FLAGS.get(key, '--' + key.replace('_', '-'))}")
    try:
        return Settings.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        source = origin.get(".".join(str(part) for part in first["loc"][:2]), path or "settings")
        raise ConfigError(f"{source}: {place}: {_expectation(first)}") from None


def read_sections(path: str, example: str) -> dict[str, Any]:
    """Return what a YAML file holds at its top, empty for an empty file; ``example`` names sections for the error.

    Raises ConfigError with one line.
    """
    try:
        with open(path, encoding="utf-8") as file:
            document = yaml.safe_load(file)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: expected sections such as {example}, found a {type(document).__name__}")
    return document


def _set(document: dict[str, Any], key: str, value: Any, origin: dict[str, str], source: str) -> None:
    section, name = key.split(".")
    part = document.setdefault(section, {})
    if not isinstance(part, dict):
        raise ConfigError(f"{section}: expected a section with keys, found {part!r}")
    expected = Settings.model_fields[section].annotation.model_fields[name].annotation  # type: ignore[union-attr]
    if isinstance(value, str) and "tuple" in str(expected):
        value = [item for item in value.split(os.pathsep if name in _PATHS else ",") if item]
    part[name] = value
    origin[key] = source


def _expectation(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        section, *inner = error["loc"]
        known = Settings.model_fields.get(str(section))
        keys = known.annotation.model_fields if known and inner else Settings.model_fields  # type: ignore[union-attr]
        if len(inner) > 1:
            keys = (LogSettings if section == "sources" else PolicySettings).model_fields
        return f"unknown key, expected one of {', '.join(keys)}"
    message = (
        error["msg"]
        .removeprefix("Value error, ")
        .replace("Input should be greater than or equal to ", "expected at least ")
        .replace("Input should be less than or equal to ", "expected at most ")
        .replace("Input should be greater than ", "expected more than ")
        .replace("Input should be ", "expected ")
        .replace("a valid tuple", "a list")
        .replace("Field required", "a value for it")
        .replace("String should have at least 1 character", "a text that is not empty")
    )
    if error["type"] == "model_type":
        message = "expected a section with keys"
    shown = repr(error["input"])
    return f"{message if message.startswith('expected') else 'expected ' + message}, found {shown[:80]}"
