"""The exporter's settings, and the port that it will answer on."""

from __future__ import annotations

import http.client
import re
import shlex
import ssl
from collections.abc import Iterator

from trainvitals.config import ConfigError, Settings
from trainvitals.detect.rules import RulesError, parse
from trainvitals.doctor.base import Here, Result, absent, ok, problem
from trainvitals.serve.reload import WebConfigFile
from trainvitals.serve.server import bind

#: Read by the probe, the process that reads the devices, or the prolog of Slurm, and no settings of the exporter.
_OTHER_VARIABLES = frozenset({"DIR", "RUN", "ATTEMPT", "DISABLE", "PCI_DEVICES", "SLURM_FOLDER"})
_PREFIX = "TRAINVITALS_"
_USUAL_PORT = 20910
_PATIENCE = 3.0


def settings(here: Here) -> Iterator[Result]:
    """Check that the settings can be used, and say which were set and where."""
    if here.settings_error:
        action = f"${{EDITOR:-vi}} {shlex.quote(here.config_file)}" if here.config_file else "env | grep ^TRAINVITALS_"
        yield problem(here.settings_error, action)
        return
    try:
        parse(here.settings.detectors.model_extra)
    except RulesError as error:
        yield problem(str(error), f"${{EDITOR:-vi}} {shlex.quote(here.config_file or 'trainvitals.yml')}")
        return
    places = [f"{key} from {_place(key, here)}" for key in _set_keys(here.settings)]
    source = here.config_file or "no file"
    yield ok(f"{source}; {', '.join(places) if places else 'every value is the default'}")


def variables(here: Here) -> Iterator[Result]:
    """Find environment variables of our prefix that nothing reads: mostly a slip of the pen."""
    known = {f"{_PREFIX}{section}_{key}".upper() for section, key in _all_keys()}
    known |= {_PREFIX + name for name in _OTHER_VARIABLES}
    unknown = sorted(name for name in here.environ if name.startswith(_PREFIX) and name not in known)
    if unknown:
        yield ok(f"nothing reads {', '.join(unknown)}", "unset " + " ".join(map(shlex.quote, unknown)))
    else:
        yield ok("no variable that nothing reads")


def web_config(here: Here) -> Iterator[Result]:
    """Check the file with TLS and users."""
    path = here.settings.web.config_file
    if path is None:
        yield absent("web.config_file is not set: no TLS and no password")
        return
    try:
        config = WebConfigFile(path)
        config.server_context()
    except ConfigError as error:
        yield problem(str(error), f"${{EDITOR:-vi}} {shlex.quote(path)}")
        return
    tls = "no TLS" if config.current.tls_server_config is None else "TLS"
    yield ok(f"{path}: {tls}, {len(config.current.basic_auth_users)} users")


def port(here: Here) -> Iterator[Result]:
    """Check that the exporter can listen, or does already."""
    address = here.settings.web.listen_address
    try:
        listener, _ = bind(address)
    except ConfigError as error:
        number = int(match[1]) if (match := re.search(r":(\d{1,5})$", address)) else _USUAL_PORT
        answer = _who_answers(number)
        if answer:
            yield ok(f"{address} is answered by {answer}")
        else:
            yield problem(str(error), f"ss -ltnp 'sport = :{number}'")
        return
    listener.close()
    yield ok(f"{address} is free: the exporter is not running, or elsewhere", "trainvitals exporter")


def _who_answers(number: int) -> str:
    """Return what an exporter of ours says of itself on this port, empty when it is none."""
    for secure in (False, True):
        try:
            connection = (
                http.client.HTTPSConnection("localhost", number, timeout=_PATIENCE, context=_unverified())
                if secure
                else http.client.HTTPConnection("localhost", number, timeout=_PATIENCE)
            )
            connection.request("GET", "/-/healthy")
            response = connection.getresponse()
            body = response.read(1024)
            connection.close()
        except (OSError, http.client.HTTPException):
            continue
        kind = "an exporter of ours" + (" with TLS" if secure else "")
        if response.status == 200 and body.startswith(b"Trainvitals"):
            return kind
        if response.status == 401 and "trainvitals" in (response.getheader("WWW-Authenticate") or ""):
            return kind + ", which wants a password"
    return ""


def _unverified() -> ssl.SSLContext:
    # We ask who is there and send nothing.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _all_keys() -> Iterator[tuple[str, str]]:
    for section, field in Settings.model_fields.items():
        for key in field.annotation.model_fields:  # type: ignore[union-attr]
            yield section, key


def _set_keys(values: Settings) -> list[str]:
    """Return the keys that were set, as in "spool.keep"."""
    found = []
    for section in sorted(values.model_fields_set):
        found += [f"{section}.{key}" for key in sorted(getattr(values, section).model_fields_set)]
    return found


def _place(key: str, here: Here) -> str:
    variable = _PREFIX + key.replace(".", "_").upper()
    if variable in here.environ:
        return variable
    if key == "spool.folders" and here.environ.get("TRAINVITALS_DIR"):
        return "TRAINVITALS_DIR"
    return "the file"


def simulated(here: Here) -> Iterator[Result]:
    """Say when devices are shown that do not exist."""
    count = here.settings.devices.simulate
    if count:
        yield ok(f"{count} devices that do not exist are shown, labelled as simulated", _without_simulation(here))
    else:
        yield ok("off: every device that is shown exists")


def _without_simulation(here: Here) -> str:
    if "TRAINVITALS_DEVICES_SIMULATE" in here.environ:
        return "unset TRAINVITALS_DEVICES_SIMULATE"
    return f"${{EDITOR:-vi}} {shlex.quote(here.config_file or 'trainvitals.yml')}"
