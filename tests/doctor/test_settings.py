"""The checks of settings, variables, TLS and the port."""

from __future__ import annotations

import http.server
import socket
import threading

import pytest
from tests.doctor.helpers import machine, only, settings

from trainvitals.doctor import settings as checks
from trainvitals.doctor.base import Outcome, here
from trainvitals.serve.app import make_app
from trainvitals.serve.server import Server
from trainvitals.serve.snapshot import SnapshotStore


def test_every_default_is_said_so():
    """Without a file there is nothing to look up."""
    result = only(checks.settings(here(None, {})))

    assert result.outcome is Outcome.OK
    assert result.why == "no file; every value is the default"


def test_each_value_that_was_set_is_named_with_its_source(tmp_path):
    """The file, a variable, and the variable that trainings know too."""
    file = tmp_path / "trainvitals.yml"
    file.write_text("collect:\n  interval: 7s\n")
    environ = {"TRAINVITALS_SPOOL_KEEP": "2h", "TRAINVITALS_DIR": "/somewhere"}

    result = only(checks.settings(here(str(file), environ)))

    assert result.why == (
        f"{file}; collect.interval from the file, spool.folders from TRAINVITALS_DIR, "
        "spool.keep from TRAINVITALS_SPOOL_KEEP"
    )


def test_a_wrong_file_is_a_problem_with_its_own_words(tmp_path):
    """The line is the one that the exporter would end with; the editor is the way out."""
    file = tmp_path / "my settings.yml"
    file.write_text("collect:\n  intervall: 7s\n")

    result = only(checks.settings(here(str(file), {})))

    assert result.outcome is Outcome.PROBLEM
    assert "intervall" in result.why
    assert result.action == f"${{EDITOR:-vi}} '{file}'"


def test_a_wrong_rule_of_a_detector_is_a_problem(tmp_path):
    """What the exporter would end with is said before, with the name that was meant."""
    file = tmp_path / "trainvitals.yml"
    file.write_text("detectors:\n  loss_spike:\n    level_error: 7\n")

    result = only(checks.settings(here(str(file), {})))

    assert result.outcome is Outcome.PROBLEM
    assert "did you mean level_errors?" in result.why


def test_a_wrong_variable_is_looked_for_in_the_environment():
    """Without a file, the mistake is in a variable."""
    result = only(checks.settings(here(None, {"TRAINVITALS_COLLECT_INTERVAL": "soon"})))

    assert result.outcome is Outcome.PROBLEM
    assert result.action == "env | grep ^TRAINVITALS_"


def test_variables_that_nothing_reads_are_named(tmp_path):
    """A slip of the pen; the probe's own variables are known."""
    environ = {"TRAINVITALS_SPOL_KEEP": "1h", "TRAINVITALS_RUN": "mine", "TRAINVITALS_SPOOL_KEEP": "1h"}

    result = only(checks.variables(machine(tmp_path, environ=environ)))

    assert result.why == "nothing reads TRAINVITALS_SPOL_KEEP"
    assert result.action == "unset TRAINVITALS_SPOL_KEEP"
    assert only(checks.variables(machine(tmp_path))).action == ""


def test_tls_is_absent_without_a_file(tmp_path):
    """It is a choice and no fault."""
    assert only(checks.web_config(machine(tmp_path))).outcome is Outcome.ABSENT


def test_a_good_web_configuration_is_counted(tmp_path):
    """Users, and no TLS."""
    file = tmp_path / "web.yml"
    file.write_text("basic_auth_users:\n  ada: $2y$05$abcdefghijklmnopqrstuuPKwLYHIEVHsvBs5jfd3hwDFTiGXhGuW\n")

    result = only(checks.web_config(machine(tmp_path, settings=settings(web={"config_file": str(file)}))))

    assert result.why == f"{file}: no TLS, 1 users"


def test_a_wrong_web_configuration_is_a_problem(tmp_path):
    """Its line names file and key."""
    file = tmp_path / "web.yml"
    file.write_text("tls_server_config:\n  cert_file: there-is-none.pem\n  key_file: there-is-none.pem\n")

    result = only(checks.web_config(machine(tmp_path, settings=settings(web={"config_file": str(file)}))))

    assert result.outcome is Outcome.PROBLEM
    assert "there-is-none.pem" in result.why


def port_of(tmp_path, number):
    """Return the result for a port on loopback."""
    return only(checks.port(machine(tmp_path, settings=settings(web={"listen_address": f"127.0.0.1:{number}"}))))


def test_a_free_port_is_fine(tmp_path):
    """Then the exporter is not running, and how to start it is said."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        number = held.getsockname()[1]

    result = port_of(tmp_path, number)

    assert result.outcome is Outcome.OK
    assert result.action == "trainvitals exporter"


def test_a_port_that_an_exporter_of_ours_has_is_fine(tmp_path):
    """It is asked for its health."""
    server = Server(make_app(SnapshotStore()), listen_address="127.0.0.1:0")
    url = server.start()
    try:
        number = int(url.rpartition(":")[2])
        result = port_of(tmp_path, number)
    finally:
        server.stop()

    assert (result.outcome, result.why) == (Outcome.OK, f"127.0.0.1:{number} is answered by an exporter of ours")


class Stranger(http.server.BaseHTTPRequestHandler):
    """Another program that speaks HTTP."""

    def do_GET(self):
        """Answer."""
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def stranger():
    """Give the port of another program."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_port_that_another_program_has_is_a_problem(tmp_path, stranger):
    """Who it is says the command."""
    result = port_of(tmp_path, stranger)

    assert result.outcome is Outcome.PROBLEM
    assert result.action == f"ss -ltnp 'sport = :{stranger}'"


def test_simulated_devices_are_said_so(tmp_path):
    """They are no fault, and how to be rid of them is said."""
    simulated = settings(devices={"simulate": 3})

    assert only(checks.simulated(machine(tmp_path))).action == ""
    result = only(checks.simulated(machine(tmp_path, settings=simulated)))
    assert result.why == "3 devices that do not exist are shown, labelled as simulated"
    by_variable = machine(tmp_path, settings=simulated, environ={"TRAINVITALS_DEVICES_SIMULATE": "3"})
    assert only(checks.simulated(by_variable)).action == "unset TRAINVITALS_DEVICES_SIMULATE"
