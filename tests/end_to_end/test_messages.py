"""What people are told: a lost device, a damaged file and a learning rate that is too high, each one message to each.

Exporter, Prometheus, Alertmanager with the shipped settings, notifier and mail server are real; the robots are ours and
check what the real ones check.  While the faults are new, robots are down or throttle for a minute, the mail server
says "come again", and the notifier is killed.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.end_to_end.stack import Stack, fetch, until
from tests.fixtures.nvml.driver import Driver, compile_stub, uuid
from tests.helpers import free_port
from tests.notify.robots import Robots, settings
from tests.notify.test_alertmanager import answers
from tests.servers import Mailbox

pytestmark = pytest.mark.end_to_end

HERE = Path(__file__).parent
LANGUAGES, KINDS = ("en", "zh"), ("dingtalk", "feishu", "wecom")
#: As Alertmanager posts: to the English robots at once, to the Chinese ones one by one.
RECEIVERS = ("all-en", *(f"{kind}-zh" for kind in KINDS))
EVERYBODY = [f"{kind}-{language}" for language in LANGUAGES for kind in (*KINDS, "mail")]
#: How robots say that they are down, or want quiet: DingTalk is not there, the others answer as theirs do.
AWAY = {
    "dingtalk": None,
    "feishu": (200, {"code": 11232, "msg": "frequency limited psm[lark.oapi]", "data": {}}),
    "wecom": (200, {"errcode": 45009, "errmsg": "api freq out of limit"}),
}
MINUTE = 60.0
LAST = "the last message"
#: The stub's devices have worn memory otherwise.
HEALTHY = ("value * sram 0", "value * tpc_repair 0", "return * histogram 3")
#: What the titles say of each fault.
TITLES = {
    "device": {"en": "Device 3 on node-017 does not answer", "zh": "node-017 上的设备 3 无响应"},
    "data": {"en": "Run shards: samples cannot be read", "zh": "训练 shards：有样本无法读取"},
    "parameter": {"en": "Run too-fast: the loss is NaN or infinite", "zh": "训练 too-fast：损失为 NaN 或无穷大"},
}
#: The next thing to do.
ACTIONS = {
    "device": {
        "en": "Take the node out of the job and resume from the last checkpoint without it.",
        "zh": "把该节点移出作业，从最后一个检查点恢复。",
    },
    "data": {"en": "Data first: open the files that are named;", "zh": "先查数据：打开所列文件；"},
    "parameter": {
        "en": "resume from the last checkpoint before that step with half the learning rate",
        "zh": "从该步之前的最后一个检查点恢复，学习率减半",
    },
}
STATES = {"firing": ("FIRING", "告警"), "resolved": ("RESOLVED", "恢复")}


class Told:
    """Everybody who is told, and what each has been told so far."""

    def __init__(self, mailbox, robots):
        self.mailbox = mailbox
        self.robots = robots

    def texts(self, who):
        """Return what somebody was told, title first."""
        kind, language = who.split("-")
        if kind == "mail":
            return self.mailbox.texts(f"team-{language}@")
        return [f"{title}\n{text}" for other, title, text in self.robots[language].taken if other == kind]

    def about(self, who, fault, state):
        """Return what somebody was told of the beginning or of the end of a fault."""
        words, title = STATES[state], TITLES[fault][who[-2:]]
        return [
            text
            for text in self.texts(who)
            if title in text.partition("\n")[0] and any(word in text.partition("\n")[0] for word in words)
        ]


class Story:
    """What happens: the faults, the trouble of those who are to be told, and the end of the faults."""

    def __init__(self, stack, told, driver, folder, notifier):
        self.stack, self.told, self.driver, self.folder = stack, told, driver, folder
        self._notifier_port = notifier
        self.data = folder / "shards"
        self.damaged = self.data / "shard-00003.npz"
        self.first_bad_step = 0

    def run(self):
        """Tell it, from the first fault to the end of the last message."""
        for robots in self.told.robots.values():
            robots.away.update(AWAY)
        # One of them is well.  Alertmanager comes again for the two beside it, also after the notifier was killed; what
        # this one took is not told to it again.
        del self.told.robots["en"].away["wecom"]
        notifier = self._notify()
        self._break()
        until(lambda: self._sent("all-en/wecom") == len(TITLES), what="the robot that is well, and its record")
        self._all_were_refused()
        begun = time.monotonic()
        notifier.send_signal(signal.SIGKILL)
        notifier.wait()
        failed = self._failed()
        until(lambda: self._failed() > failed, what="a try while the notifier was dead")
        for robots in self.told.robots.values():
            robots.tried.clear()
        self._notify()
        self._all_were_refused()
        until(lambda: time.monotonic() - begun > MINUTE, what="a minute")
        for robots in self.told.robots.values():
            robots.away.clear()
        self._everybody("firing")
        self._mend()
        self._everybody("resolved")
        self._last_message()

    def _notify(self):
        name = f"notifier-{time.monotonic():.0f}"
        child = self.stack.spawn(
            name,
            [sys.executable, "-m", "trainvitals", "notify", f"--config.file={self.folder}/notify.yml",
             f"--web.listen-address=127.0.0.1:{self._notifier_port}"],
        )  # fmt: skip
        until(lambda: fetch(f"http://127.0.0.1:{self._notifier_port}/-/ready"), what="the notifier")
        return child

    def _break(self):
        """A device is lost, a file is damaged, a learning rate is too high."""
        self.driver.behave(*HEALTHY, "return 3 * 15")
        self.data.mkdir()
        draw = np.random.default_rng(0)
        for number in range(8):
            inputs = draw.normal(size=(64, 8))
            noise = 0.1 * draw.normal(size=64)
            np.savez(self.data / f"shard-{number:05d}.npz", inputs=inputs, targets=inputs.sum(axis=1) + noise)
        self._whole = self.damaged.read_bytes()
        self.damaged.write_bytes(self._whole[: len(self._whole) // 2])
        for name, run, argument in (("reader", "shards", self.data), ("hurrier", "too-fast", self.folder)):
            command = [sys.executable, str(HERE / f"{name}.py"), str(argument)]
            spool = str(self.stack.spool)
            self.stack.spawn(name, command, TRAINVITALS_DIR=spool, TRAINVITALS_RUN=run, OMP_NUM_THREADS="1")
        self.first_bad_step = int(until(lambda: self.stack.log("hurrier"), what="the loss that is no number"))

    def _mend(self):
        """Do what the messages say."""
        self.driver.behave(*HEALTHY)
        self.damaged.write_bytes(self._whole)
        (self.folder / "back").touch()

    def _all_were_refused(self):
        """Wait until each robot that is away was asked for."""
        for robots in self.told.robots.values():
            until(lambda robots=robots: set(robots.away) <= {kind for kind, _ in robots.tried}, what="refusals")

    def _everybody(self, state):
        for who in EVERYBODY:
            for fault in TITLES:
                until(lambda who=who, fault=fault: self.told.about(who, fault, state), what=f"{who}: {fault} {state}")

    def _sent(self, target):
        found = re.search(rf'sent_total{{target="{target}"}} (\S+)', self._metrics(self._notifier_port))
        return float(found[1]) if found else 0.0

    def _failed(self):
        """Return how many tries of Alertmanager's failed."""
        text = self._metrics(self.stack.alertmanager_port)
        found = re.search(r'requests_failed_total{integration="webhook"} (\S+)', text)
        return float(found[1]) if found else 0.0

    def _metrics(self, port):
        return fetch(f"http://127.0.0.1:{port}/metrics")

    def _last_message(self):
        """Send one more through Alertmanager: who got that one has got all that was sent before."""
        now = datetime.now(timezone.utc)
        alert = {
            "labels": {"alertname": "Last", "severity": "critical"},
            "annotations": {"summary": LAST, "summary_zh": LAST},
            "startsAt": now.isoformat(),
            "endsAt": (now + timedelta(hours=1)).isoformat(),
        }
        assert answers(f"{self.stack.alertmanager}/api/v2/alerts", json.dumps([alert]).encode())
        for who in EVERYBODY:
            until(lambda who=who: any(LAST in text for text in self.told.texts(who)), what=f"{who}: the last message")


def hurry(rule):
    """Let what lasts for a minute last for some seconds; nothing else of a rule is changed."""
    if rule.get("alert") == "TrainvitalsDeviceDown":
        rule["for"] = "5s"
    if "keep_firing_for" in rule:
        rule["keep_firing_for"] = "5s"
    return rule


def receivers(port):
    """Return what makes of the shipped receiver one that tells everybody in both languages."""

    def receive(receiver):
        for mail in list(receiver.get("email_configs", ())):
            chinese = yaml.safe_load(re.sub(r'(template "trainvitals\.\w+)"', r'\1_zh"', yaml.safe_dump(mail)))
            receiver["email_configs"].append({**chinese, "to": "team-zh@example.org"})
            mail["to"] = "team-en@example.org"
            receiver["webhook_configs"] += [
                {"url": f"http://127.0.0.1:{port}/alertmanager/{name}", "send_resolved": True} for name in RECEIVERS
            ]
        return receiver

    return receive


def notifier_settings(robots, folder):
    """Return the notifier's settings: one receiver for the English robots together, one for each Chinese one."""
    found = {}
    for language in LANGUAGES:
        (folder / language).mkdir()
        found[language] = settings(robots[language], folder / language)
    chinese = {f"{kind}-zh": {**found["zh"]["receivers"][kind], "language": "zh"} for kind in KINDS}
    return {**found["en"], "receivers": {"all-en": {**found["en"]["receivers"]["all"], "language": "en"}, **chinese}}


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """The whole story, once for all tests that look at what was told."""
    if not (shutil.which("prometheus") and (shutil.which("prometheus-alertmanager") or shutil.which("alertmanager"))):
        pytest.skip("Prometheus or Alertmanager is not installed")
    folder = tmp_path_factory.mktemp("messages")
    (folder / "nvml").mkdir()
    driver = Driver(compile_stub(folder), folder / "nvml")
    driver.behave(*HEALTHY)
    port = free_port()
    with Robots() as english, Robots() as chinese:
        robots = {"en": english, "zh": chinese}
        (folder / "notify.yml").write_text(yaml.safe_dump(notifier_settings(robots, folder)))
        mailbox = Mailbox(*["451 4.7.1 greylisted, come again"] * 4)
        # What this machine itself has to say would be told as well.
        quiet = "attribution,host,kernel,logs,network,processes,storage"
        driven = ("LD_LIBRARY_PATH", "STUB_NVML_CONTROL", "TRAINVITALS_PCI_DEVICES")
        environ = {**{name: driver.environ[name] for name in driven}, "TRAINVITALS_COLLECT_DISABLE": quiet}
        with Stack(
            folder, exporter=[str(HERE / "hasty.py")], environ=environ, node="node-017", rules=hurry,
            receive=receivers(port), mailbox=mailbox,
        ) as stack:  # fmt: skip
            until(lambda: stack.value("count(trainvitals_device_up == 1)") == 8, what="eight devices")
            found = Story(stack, Told(mailbox, robots), driver, folder, port)
            try:
                found.run()
            finally:
                # Shown when a test fails, and for whoever wants to read them (pytest -s).
                for who in EVERYBODY:
                    print(*(f"=== {who}\n{text}\n" for text in found.told.texts(who)), sep="\n")
            yield found


@pytest.mark.parametrize("who", EVERYBODY)
def test_each_fault_is_one_message_and_its_end_another(story, who):
    """None is lost and none doubled, whoever was down, throttled or killed meanwhile."""
    counts = {(fault, state): len(story.told.about(who, fault, state)) for fault in TITLES for state in STATES}

    assert counts == dict.fromkeys(counts, 1)


@pytest.mark.parametrize("who", EVERYBODY)
def test_nothing_else_is_told(story, who):
    """What follows from a fault is quieted by the inhibitions, and a healthy device and a healthy loss say nothing."""
    titles = [text.partition("\n")[0] for text in story.told.texts(who)]
    expected = [LAST, *(TITLES[fault][who[-2:]] for fault in TITLES for _ in STATES)]

    assert [title for title in titles if not any(words in title for words in expected)] == []
    assert len(titles) == len(expected)


@pytest.mark.parametrize("fault", TITLES)
@pytest.mark.parametrize("who", EVERYBODY)
def test_a_message_says_where_and_what_to_do(story, who, fault):
    """Node and UUID of the device; the file; run, rank and step: each with the next thing to do, in the language."""
    places = {
        "device": ("node-017", "device=3", uuid(3), "lost"),
        "data": ("run=shards", "node-017", "rank 0", str(story.damaged)),
        "parameter": ("run=too-fast", "rank 0 on node-017", f"since step {story.first_bad_step}: loss is NaN"),
    }

    [text] = story.told.about(who, fault, "firing")

    # A mail is folded.
    assert [part for part in (*places[fault], ACTIONS[fault][who[-2:]]) if part not in " ".join(text.split())] == []


@pytest.mark.parametrize("fault", TITLES)
@pytest.mark.parametrize("who", EVERYBODY)
def test_the_end_of_a_fault_asks_for_nothing(story, who, fault):
    """It says where and until when, and has no action and nothing to silence."""
    [text] = story.told.about(who, fault, "resolved")

    assert {"en": "Until", "zh": "结束"}[who[-2:]] in text
    assert ACTIONS[fault][who[-2:]] not in text
    assert "silences" not in text


def test_robots_were_down_and_notifier_and_mail_server_were_asked_again(story):
    """The story is the one that is told above: without its trouble the other tests would say little."""
    assert [robots.away for robots in story.told.robots.values()] == [{}, {}]
    assert story.told.mailbox.refusals == []
    assert len(list(story.folder.glob("notifier-*.log"))) == 2
