"""The notifier between Alertmanager's webhook and robots that check what the real ones check."""

from __future__ import annotations

import asyncio
import re
import sys

import httpx
import pytest
from starlette.applications import Starlette
from tests.notify.robots import Robots, alert, body, settings

from trainvitals.config import ConfigError
from trainvitals.notify.app import make_app
from trainvitals.notify.bucket import Bucket
from trainvitals.notify.channels import dingtalk, feishu, wecom
from trainvitals.notify.command import build
from trainvitals.notify.group import parse
from trainvitals.notify.memory import Memory
from trainvitals.notify.post import HttpPost
from trainvitals.notify.settings import Settings, load


@pytest.fixture
def robots():
    """Run the robots."""
    with Robots() as running:
        yield running


class Clock:
    """A clock that stands."""

    def __init__(self):
        self.now = 1_780_000_000.0

    def __call__(self):
        """Return the time."""
        return self.now


def notify(robots, folder, *posts, clock=None, memory="", **options):
    """Post to the notifier, one after the other, and return the answers and the application's courier.

    A post is a receiver and a body, or a function that is called between two posts.
    """
    found = Settings.model_validate(settings(robots, folder, **options))

    async def run():
        post = HttpPost(5.0)
        courier = build(found, Memory(memory, window=found.duplicates, clock=clock or Clock()), post)
        app: Starlette = make_app(courier)
        answers = []
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://notifier") as client:
            for item in posts:
                if callable(item):
                    item(courier)
                    continue
                receiver, content = item
                answers.append(await client.post(f"/alertmanager/{receiver}", content=content))
            scrape = (await client.get("/metrics")).text
        await post.close()
        courier.memory.close()
        return answers, scrape

    return asyncio.run(run())


@pytest.mark.parametrize("kind", ["dingtalk", "feishu", "wecom"])
def test_a_message_says_all_in_both_languages(kind, robots, tmp_path):
    """What, how grave, where, since when, the evidence, what to do, and links to the runbook and to a silence."""
    answers, scrape = notify(robots, tmp_path, (kind, body()))

    assert [answer.status_code for answer in answers] == [200]
    [(taker, title, text)] = robots.taken
    assert taker == kind
    assert "[告警 FIRING 严重 critical] 设备无响应 / A device does not answer" in title
    for part in (
        "instance=node-001",
        "2026-11-30 12:05:06 +08:00",
        "node-001 上的设备 5:丢失",
        "device 5 on node-001: lost",
        "先排空节点,再重置设备。",
        "Drain the node, then reset the device.",
        "https://example.org/runbooks/TrainvitalsDeviceDown.md",
        "http://alertmanager:9093/#/silences/new?filter=%7Balertname%3D%22TrainvitalsDeviceDown%22",
    ):
        assert part in text, part
    assert f'trainvitals_notify_sent_total{{target="{kind}/{kind}"}} 1.0' in scrape


def test_a_resolved_message_says_since_when_until_when_and_asks_for_nothing(robots, tmp_path):
    """It is shorter, has no action, and nothing to silence."""
    notify(robots, tmp_path, ("dingtalk", body(alert(status="resolved"))))

    [(_, title, text)] = robots.taken
    assert title == "[恢复 RESOLVED] 设备无响应 / A device does not answer"
    assert "2026-11-30 12:25:06 +08:00" in text
    assert "Drain the node" not in text
    assert "silences" not in text


def test_what_was_just_said_is_not_said_again(robots, tmp_path):
    """One alert has its heading in the title; of two with the same action the second says "as above"."""
    notify(robots, tmp_path, ("dingtalk", body()), ("dingtalk", body(alert(1), alert(2), key="two")))

    alone, two = (text for _, _, text in robots.taken)
    assert alone.count("A device does not answer") == 1
    assert two.count("A device does not answer") == 3
    assert two.count("Drain the node") == 1
    assert "处理建议：同上\n\nWhat to do: as above" in two


def test_a_link_to_the_dashboard_keeps_node_and_time(robots, tmp_path):
    """Where the address of Grafana is known."""
    notify(robots, tmp_path, ("wecom", body()), grafana_url="https://grafana.example.org/")

    address = "https://grafana.example.org/d/trainvitals-node-zh?var-instance=node-001&from=1796007906123&to=now"
    assert f"({address})" in robots.taken[0][2]


@pytest.mark.parametrize(
    ("kind", "answer", "reason"),
    [
        ("dingtalk", {"errcode": 130101, "errmsg": "send too fast, exceed 20 times per minute"}, "throttled"),
        ("feishu", {"code": 9499, "msg": "too many request", "data": {}}, "throttled"),
        ("feishu", {"code": 11232, "msg": "frequency limited psm[lark.oapi]", "data": {}}, "throttled"),
        ("wecom", {"errcode": 45009, "errmsg": "api freq out of limit"}, "throttled"),
        ("wecom", {"errcode": -1, "errmsg": "system busy"}, "down"),
        ("dingtalk", b"<html>login to the network</html>", "no_answer"),
    ],
)
def test_who_is_not_taken_now_is_to_come_again(kind, answer, reason, robots, tmp_path):
    """The robot's refusal comes with status 200; Alertmanager gets 503, and the next try goes through."""
    robots.answers = [(200, answer)]

    def rest(courier):
        for target in courier.targets[kind]:
            target.bucket._paused = 0.0

    answers, scrape = notify(robots, tmp_path, (kind, body()), rest, (kind, body()))

    assert [answer.status_code for answer in answers] == [503, 200]
    assert int(answers[0].headers["Retry-After"]) >= 1
    assert len(robots.taken) == 1
    assert f'trainvitals_notify_failures_total{{reason="{reason}",target="{kind}/{kind}"}} 1.0' in scrape


def test_a_robot_that_said_slow_down_is_left_alone(robots, tmp_path):
    """DingTalk blocks who goes on for ten minutes: nothing is tried meanwhile."""
    robots.answers = [(200, {"errcode": 130101, "errmsg": "send too fast"})]

    answers, _ = notify(robots, tmp_path, ("dingtalk", body()), ("dingtalk", body()))

    assert [answer.status_code for answer in answers] == [503, 503]
    assert len(robots.tried) == 1


@pytest.mark.parametrize(
    ("kind", "file", "reason"),
    [("dingtalk", "ding2", "signature"), ("dingtalk", "ding", "token"), ("feishu", "fei2", "signature"),
     ("feishu", "fei", "token"), ("wecom", "we", "token")],
)  # fmt: skip
def test_a_wrong_secret_is_a_refusal_and_stays_secret(kind, file, reason, robots, tmp_path, caplog):  # noqa: PLR0917
    """400 for Alertmanager, a word for the counter, and the secret in no log."""
    found = settings(robots, tmp_path)
    (tmp_path / file).write_text("wrong-secret\n")

    async def run():
        post = HttpPost(5.0)
        courier = build(Settings.model_validate(found), Memory("", window=9.0, clock=Clock()), post)
        outcome = await courier.deliver(kind, parse(body()))
        await post.close()
        return outcome

    outcome = asyncio.run(run())

    assert (outcome.kind, outcome.text) == ("refused", f"{kind}/{kind}: {reason}")
    assert robots.taken == []
    assert "wrong-secret" not in caplog.text


def test_a_secret_that_is_missing_is_named_by_its_file_and_tried_again(robots, tmp_path):
    """Nothing is lost: it may be on its way."""

    def remove(_):
        (tmp_path / "we").rename(tmp_path / "we.away")

    def put_back(_):
        (tmp_path / "we.away").rename(tmp_path / "we")

    answers, _ = notify(robots, tmp_path, remove, ("wecom", body()), put_back, ("wecom", body()))

    assert [answer.status_code for answer in answers] == [503, 200]
    assert len(robots.taken) == 1


def test_a_cut_connection_and_a_dead_robot_are_no_loss(robots, tmp_path):
    """Alertmanager is asked to come again, and the address with its token is in no answer."""
    robots.answers = [None]

    answers, _ = notify(robots, tmp_path, ("wecom", body()), ("wecom", body()))

    assert [answer.status_code for answer in answers] == [503, 200]
    assert answers[0].text == "wecom/wecom: unreachable\n"


def test_a_retry_goes_only_to_whom_did_not_take_it(robots, tmp_path):
    """One robot of three is down: the other two get the message once, whatever the number of retries."""

    def down(_):
        robots.answers = [(200, {"errcode": -1, "errmsg": "busy"})] * 3

    answers, _ = notify(robots, tmp_path, down, ("all", body()), ("all", body()), ("all", body()))

    assert [answer.status_code for answer in answers] == [503, 200, 200]
    assert sorted(kind for kind, _, _ in robots.taken) == ["dingtalk", "feishu", "wecom"]


def test_what_was_taken_is_known_after_a_restart(robots, tmp_path):
    """Killed between the robot's yes and our answer to Alertmanager: told once."""
    path = str(tmp_path / "state" / "notify.db")
    robots.answers = []

    def break_feishu(_):
        (tmp_path / "fei2").write_text("other\n")

    first, _ = notify(robots, tmp_path, break_feishu, ("all", body()), memory=path)
    again, _ = notify(robots, tmp_path, ("all", body()), memory=path)

    assert [answer.status_code for answer in first] == [400]
    assert [answer.status_code for answer in again] == [200]
    assert sorted(kind for kind, _, _ in robots.taken) == ["dingtalk", "feishu", "wecom"]


def test_the_same_message_later_is_a_reminder(robots, tmp_path):
    """Within four minutes it is a retry whose answer was lost, and not told."""
    clock = Clock()

    def pass_time(_):
        clock.now += 3600.0

    answers, scrape = notify(
        robots, tmp_path, ("wecom", body()), ("wecom", body()), pass_time, ("wecom", body()), clock=clock
    )

    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert len(robots.taken) == 2
    assert 'trainvitals_notify_messages_total{outcome="duplicate"} 1.0' in scrape


def test_many_alerts_are_one_message_with_the_gravest_first(robots, tmp_path):
    """Ten are shown one by one, the others counted; all fits into what a robot takes."""
    alerts = [alert(number, severity="warning") for number in range(30)] + [alert(77)]

    answers, _ = notify(robots, tmp_path, ("dingtalk", body(*alerts, truncatedAlerts=4)))

    assert [answer.status_code for answer in answers] == [200]
    [(_, title, text)] = robots.taken
    assert title == "[告警 FIRING:35 严重 critical] 设备无响应 / A device does not answer"
    assert text.index("node-077") < text.index("node-000")
    assert "and 25 more" in text


@pytest.mark.parametrize("kind", ["dingtalk", "feishu", "wecom"])
def test_what_is_too_long_is_parted_or_cut(kind, robots, tmp_path):
    """No robot gets more than it takes; nothing of the ten alerts is lost but the ends of endless texts."""
    alerts = [alert(number, description="证据" * 4000, description_zh="x" * 9000) for number in range(10)]

    def hurry(courier):
        for target in courier.targets[kind]:
            target.bucket = Bucket(6000.0, lambda: 0.0, burst=100.0)

    answers, _ = notify(robots, tmp_path, hurry, (kind, body(*alerts)))

    assert [answer.status_code for answer in answers] == [200]
    whole = "".join(text for _, _, text in robots.taken)
    assert all(f"node-{number:03d}" in whole for number in range(10))
    assert len(robots.taken) > 1
    assert f"(1/{len(robots.taken)})" in robots.taken[0][1]


def test_foreign_text_makes_no_markup(robots, tmp_path):
    """A run may be called anything: no link, no mention, no line of its own."""
    nasty = alert(summary="[click](http://evil) <at id=all></at> `x` **y**\n# head\u202e", summary_zh="")

    notify(robots, tmp_path, ("feishu", body(nasty)))

    [(_, title, text)] = robots.taken
    assert "[click]" not in text + title
    assert "<at" not in text
    assert "\n# head" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"version":"3"}', body(version="5"), body().replace(b'"labels"', b'"lables"'), b"\xff" * 99,
     b'{"version":"4","groupKey":"x","status":"firing","alerts":[]}', b"[" * 100_000],
)  # fmt: skip
def test_what_is_no_message_is_refused(content, robots, tmp_path):
    """With 400 and one line, and nothing is sent."""
    answers, scrape = notify(robots, tmp_path, ("wecom", content))

    assert answers[0].status_code == 400
    assert answers[0].text.count("\n") == 1
    assert robots.tried == []
    assert 'trainvitals_notify_messages_total{outcome="malformed"} 1.0' in scrape


def test_an_endless_body_and_an_unknown_receiver_are_refused(robots, tmp_path):
    """With 413 and 404."""
    answers, _ = notify(robots, tmp_path, ("wecom", b" " * (1 << 21)), ("nobody", body()))

    assert [answer.status_code for answer in answers] == [413, 404]


def test_a_disk_that_cannot_be_written_costs_only_the_memory(robots, tmp_path):
    """The message is sent all the same, and the series say what may happen."""

    def break_memory(courier):
        courier.memory._base.execute("DROP TABLE accepted")

    answers, scrape = notify(robots, tmp_path, break_memory, ("wecom", body()))

    assert [answer.status_code for answer in answers] == [200]
    assert "trainvitals_notify_memory_lossy 1.0" in scrape


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("receivers: {}", "receivers: "),
        ("recievers: {}", "receivers"),
        ("receivers: {a: {targets: [{kind: dingtalk, token: x}]}}", "token_file, the file that holds it"),
        ("receivers: {a: {targets: [{kind: dingding, token_file: x}]}}", "expected one of dingtalk, feishu, wecom"),
        ("receivers: {a: {targets: [{kind: wecom}]}}", "key_file is missing"),
        ("receivers: {a: {language: fr, targets: [{kind: wecom, key_file: x}]}}", "language"),
        ("timezone: Mars\nreceivers: {a: {targets: [{kind: wecom, key_file: x}]}}", "time zone"),
        ("a: [", "line 1"),
    ],
)
def test_a_wrong_setting_is_one_line(change, words, tmp_path):
    """It names the file, the key and what was expected."""
    path = tmp_path / "notify.yml"
    path.write_text(change)

    with pytest.raises(ConfigError) as error:
        load(str(path))
    assert words in str(error.value)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_the_window_of_a_bucket_holds_what_a_robot_takes():
    """In no minute more than 18 messages, of which five at once."""
    now = 0.0
    bucket = Bucket(18.0, lambda: now)
    taken = []
    while now < 300.0:
        while not bucket.take():
            taken.append(now)
        now += 0.25

    assert taken.count(0.0) == 5
    assert max(sum(begin <= moment < begin + 60.0 for moment in taken) for begin in taken) <= 18
    assert len(taken) >= 65


def test_times_are_read_to_the_microsecond():
    """Alertmanager writes nanoseconds."""
    group = parse(body())

    assert group.alerts[0].starts.isoformat() == "2026-11-30T04:05:06.123456+00:00"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_apprise_is_given_text_title_and_level(tmp_path, monkeypatch):
    """Through the real library, to a service of ours on loopback; a library that is missing is named."""
    apprise = pytest.importorskip("apprise")
    given = []

    @apprise.decorators.notify(on="trainvitals")
    def take(body, title, notify_type, *_args, **_kwargs):
        given.append((title, notify_type, body))
        return len(given) > 1

    (tmp_path / "url").write_text("trainvitals://\n")
    found = Settings.model_validate(
        {"receivers": {"a": {"targets": [{"kind": "apprise", "url_file": str(tmp_path / "url")}]}}}
    )

    async def run():
        courier = build(found, Memory("", window=9.0, clock=Clock()), HttpPost(5.0))
        outcomes = [(await courier.deliver("a", parse(body()))).text for _ in range(2)]
        monkeypatch.setitem(sys.modules, "apprise", None)
        return [*outcomes, (await courier.deliver("a", parse(body(key="other")))).text]

    outcomes = asyncio.run(run())

    assert outcomes == ["a/apprise: refused", "sent", "a/apprise: library"]
    assert given[1][0] == "[FIRING critical] A device does not answer"
    assert given[1][1] == "failure"
    assert "Drain the node" in given[1][2]


def test_every_reason_is_a_series_from_the_start(robots, tmp_path):
    """A first failure is an increase, also where nobody sends again; and no channel knows a reason without a series."""
    _, scrape = notify(robots, tmp_path, ("dingtalk", body()))
    shown = set(re.findall(r'notify_failures_total\{reason="(\w+)",target="dingtalk/dingtalk"\} 0.0', scrape))

    assert shown == {
        *("address", "content", "down", "keyword", "library", "no_answer", "rate", "refused", "robot", "secret"),
        *("signature", "throttled", "timeout", "token", "unreachable"),
    }
    named = {word for module in (dingtalk, feishu, wecom) for word in module._OURS.values()}
    assert named <= shown
