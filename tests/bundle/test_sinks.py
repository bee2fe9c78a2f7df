"""The mail server and the webhook, spoken to as Alertmanager does."""

from __future__ import annotations

import http.client
import json
import smtplib
import subprocess
import sys
from email.message import EmailMessage
from queue import SimpleQueue

import pytest
from tests.helpers import free_port

from trainvitals.bundle.sinks import STATUS_HEADER, MailSink, Message, WebhookSink, from_webhook

ALERT = {
    "status": "firing",
    "labels": {"alertname": "TrainvitalsLossNonfinite", "run": "demo", "severity": "critical"},
    "annotations": {
        "summary": "Run demo: the loss is NaN or infinite",
        "description": "rank 0 on node: since step 1002: loss is NaN; before: 4.8 at step 1001.",
        "action": "Data first: look at the batch of that step. Parameters: half the learning rate.",
    },
}


@pytest.fixture
def queue():
    """Where messages arrive."""
    return SimpleQueue()


@pytest.fixture
def webhook(queue):
    """A webhook that listens, and a function that posts to it."""
    sink = WebhookSink(queue)

    def post(body):
        connection = http.client.HTTPConnection(sink.url.split("/")[2], timeout=30)
        connection.request("POST", "/", body)
        status = connection.getresponse().status
        connection.close()
        return status

    yield post
    sink.close()


@pytest.fixture
def mail(queue):
    """A mail server that listens."""
    sink = MailSink(queue)
    yield sink
    sink.close()


def test_an_alert_becomes_a_message_that_names_run_rank_step_and_action(webhook, queue):
    """Where, evidence and action are lines of their own; the short form has the first sentence of the action."""
    assert webhook(json.dumps({"alerts": [ALERT]})) == 200
    assert queue.get(timeout=30) == Message(
        channel="webhook",
        status="firing",
        subject="TrainvitalsLossNonfinite",
        lines=(
            "Where: run demo",
            "Evidence: rank 0 on node: since step 1002: loss is NaN; before: 4.8 at step 1001.",
            "What to do: Data first: look at the batch of that step. Parameters: half the learning rate.",
        ),
        short=(
            "TrainvitalsLossNonfinite (run demo): "
            "rank 0 on node: since step 1002: loss is NaN; before: 4.8 at step 1001. "
            "To do: Data first: look at the batch of that step."
        ),
    )


def test_a_resolved_alert_asks_for_nothing():
    """No action without a fault."""
    (message,) = from_webhook({"alerts": [{**ALERT, "status": "resolved"}]})
    assert message.status == "resolved"
    assert "do" not in " ".join(message.lines).split()
    assert message.short.endswith("at step 1001.")


def test_a_group_becomes_one_message_for_each_alert():
    """Alertmanager sends groups."""
    assert len(from_webhook({"alerts": [ALERT, ALERT]})) == 2


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"alerts": 3}', b'{"alerts": [{}]}', b"\xff"])
def test_what_is_no_alert_is_refused(webhook, queue, body):
    """Nonsense costs itself: 400, and the next one is taken."""
    assert webhook(body) == 400
    assert webhook(json.dumps({"alerts": [ALERT]})) == 200
    assert queue.get(timeout=30).status == "firing"


def test_a_label_cannot_steer_the_terminal():
    """Escape sequences lose their escape."""
    labels = {**ALERT["labels"], "run": "\x1b[2Jdemo\r\n"}
    (message,) = from_webhook({"alerts": [{**ALERT, "labels": labels}]})
    assert message.lines[0] == "Where: run  [2Jdemo"


def test_a_mail_becomes_a_message(mail, queue):
    """The plain text counts, without the HTML, the signature and what the subject says already."""
    letter = EmailMessage()
    letter["From"], letter["To"] = "trainvitals@localhost", "you@localhost"
    letter["Subject"] = "[FIRING critical] Run demo: the loss is NaN or infinite"
    letter[STATUS_HEADER] = "firing"
    letter.set_content(
        "FIRING critical: Run demo: the loss is NaN or infinite\nWhere: run=demo\n"
        "Evidence: rank 0: since step 1002\nWhat to do: Data first.\n\n-- \nSent by Alertmanager\n"
    )
    letter.add_alternative("<p>raw HTML</p>", subtype="html")
    host, port = mail.address.split(":")
    with smtplib.SMTP(host, int(port), timeout=30) as client:
        client.send_message(letter)
        client.send_message(letter)
    for _ in range(2):
        assert queue.get(timeout=30) == Message(
            channel="e-mail",
            status="firing",
            subject="[FIRING critical] Run demo: the loss is NaN or infinite",
            lines=("Where: run=demo", "Evidence: rank 0: since step 1002", "What to do: Data first."),
            short="[FIRING critical] Run demo: the loss is NaN or infinite",
        )


def test_an_open_connection_does_not_keep_the_mail_server(queue):
    """Closing does not wait for a client that stays."""
    sink = MailSink(queue)
    host, port = sink.address.split(":")
    client = smtplib.SMTP(host, int(port), timeout=30)
    sink.close()
    client.close()


def test_the_inbox_prints_what_people_would_be_told():
    """As a process, on an address of choice: a health check finds it, a message is printed, SIGTERM ends it well."""
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "trainvitals.bundle.inbox", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == f"listening on http://{address}/\n"
        connection = http.client.HTTPConnection(address, timeout=30)
        connection.request("GET", "/-/healthy")
        statuses = [connection.getresponse().status]
        connection.close()
        connection.request("POST", "/alertmanager", json.dumps({"alerts": [ALERT]}))
        statuses.append(connection.getresponse().status)
        connection.close()
        printed = [process.stdout.readline() for _ in range(5)]
        process.terminate()

    assert (statuses, process.returncode) == ([200, 200], 0)
    assert printed == [
        "FIRING TrainvitalsLossNonfinite\n",
        "Where: run demo\n",
        "Evidence: rank 0 on node: since step 1002: loss is NaN; before: 4.8 at step 1001.\n",
        "What to do: Data first: look at the batch of that step. Parameters: half the learning rate.\n",
        "\n",
    ]


def test_without_its_library_there_is_no_mail_server(monkeypatch, queue):
    """The caller is told by the usual exception, and goes on without mail."""
    monkeypatch.setitem(sys.modules, "aiosmtpd.smtp", None)
    with pytest.raises(ModuleNotFoundError):
        MailSink(queue)
