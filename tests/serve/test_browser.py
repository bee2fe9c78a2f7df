"""The page in a real headless Chromium: what a person sees, on a phone and on a desk, dark and light."""

from __future__ import annotations

import copy
import math
import time

import pytest
from tests.serve import chromium

from trainvitals import detect
from trainvitals.collect.faults import FaultSeen
from trainvitals.collect.overview import Overview
from trainvitals.collect.rank import Rank
from trainvitals.collect.runs import Finding
from trainvitals.detect import Verdict
from trainvitals.serve.page import Page
from trainvitals.telemetry import DeviceSample, Event, Identity, Step

HOSTILE = "<img src=x onerror=\"document.title='broken'\"><b>run</b>"
ADVICE = {"loss_nonfinite": {"action": ["Look at the batch.", "检查该批次。"], "runbook": "https://example.org/nan"}}


@pytest.fixture(scope="module")
def started():
    """A Chromium for all tests of this file."""
    path = chromium.program()
    if path is None:
        pytest.skip("chromium is not installed (Debian: apt-get install chromium)")
    with chromium.browser(path) as running:
        yield running


@pytest.fixture
def browser(started):
    """The same with nothing remembered and nothing noted, at the size of a desk."""
    started.open("about:blank")
    started.requests.clear()
    started.problems.clear()
    started.look()
    return started


def overview(runs=1, *, name="llama-7b", broken=True):
    """What a node with two devices and some runs shows."""
    devices = [DeviceSample(index=number, uuid=f"GPU-{number}", vendor="nvidia", name="H100") for number in (0, 1)]
    devices[0].set("utilization_ratio", 0.93)
    devices[0].set("temperature_celsius", 64.0, "gpu")
    devices[1] = devices[1].down("lost")
    shown = Overview(lambda: devices, lambda: [FaultSeen(time.time(), "1", 79, 1, "critical", "GPU fell off the bus")])
    ranks, findings = {}, {}
    for place in range(runs):
        run = name if place == 0 else f"run-{place:02}"
        identity = Identity(run=run, world_size=2, target_steps=1000, device_uuid="GPU-0", framework="pytorch")
        ranks[run] = [Rank(identity, detect.build(), target_steps=1000, started=time.time() - 600.0)]
        rank = ranks[run][0]
        rank.heartbeat, rank.last_step = time.time(), Step(250, 250, time.time(), {})
        rank.values = {"loss": 1.75}
        rank.checkpoint = Event(time.time() - 60.0, "checkpoint", 200, {"seconds": 4.5})
        losses = [4.0 * math.exp(-number / 60.0) + 1.7 for number in range(251)]
        losses[240] = math.nan if broken else 1.75
        rank.curve.take([Step(number, number, 0.0, {"loss": loss}) for number, loss in enumerate(losses)])
        if broken:
            verdict = Verdict(ratio=3.0, since_step=240, evidence="since step 240: loss is NaN", severity="critical")
            findings[run] = [Finding("loss_nonfinite", "parameter", verdict, (0,))]
        else:
            findings[run] = [Finding("loss_nonfinite", "parameter", Verdict(ratio=0.0), (0,))]
    shown.observe(ranks, findings, time.time())
    return shown.snapshot(time.time())


@pytest.fixture
def page():
    """The page, which a browser asks for each second."""
    return Page(1.0, lambda: ADVICE)


def test_a_person_sees_gauges_check_list_loss_devices_and_events(serve, browser, page):
    """All of it as text, without an error and without a request to anybody else."""
    page.publish(overview())
    url = serve(page=page)
    browser.open(url + "/")
    browser.until("document.querySelector('.chart') !== null")
    browser.until("document.querySelector('.finding a') !== null")

    text = browser.text()

    for words in (
        "llama-7b", "25%", "step 250 of 1,000", "Learning\n", "0%", "Loss NaN or infinite",
        "since step 240: loss is NaN", "Look at the batch.", "checkpoint saved · step 200",
        "0 · H100", "● answers", "93%", "64 °C", "does not answer: lost", "XID 79 on device 1: GPU fell off the bus",
        "1 act", "signals cannot say anything yet", "1 of 2",
    ):  # fmt: skip
        assert words in text, words
    label = browser.run("document.querySelector('.chart').getAttribute('aria-label')")
    assert label == "Loss from 5.7 at step 0 to 1.762 at step 250"
    assert browser.run("document.querySelectorAll('.chart .bad').length") == 1
    assert browser.run("document.querySelectorAll('.chart .save').length") == 1
    assert browser.problems == []
    assert {request.removeprefix(url) for request in browser.requests if request.startswith("http")} == {
        "/", "/page/page.css", "/page/page.js", "/page/texts.json", "/api/v1/overview", "/api/v1/advice",
    }  # fmt: skip


def test_the_name_of_a_run_is_text(serve, browser, page):
    """Markup in it is shown as it is, everywhere, and never run."""
    shown = overview(2, name=HOSTILE)
    shown["runs"][0]["events"].append({"time": 1.0, "kind": "change", "text": HOSTILE})
    shown["runs"][0]["framework"] = HOSTILE
    shown["devices"][0]["name"] = shown["devices"][1]["reason"] = shown["faults"][0]["text"] = HOSTILE
    page.publish(shown)
    browser.open(serve(page=page) + "/")
    browser.until("document.querySelector('#devices:not([hidden])') !== null")

    assert browser.run("document.querySelectorAll('img, b b, main script').length") == 0
    assert browser.text().count("<img src=x onerror=") >= 5
    assert "broken" not in browser.run("document.title")
    assert [problem for problem in browser.problems if "Refused" in problem] == []


def test_the_page_renews_itself_and_keeps_what_a_reader_opened(serve, browser, page):
    """New numbers come without a reload; an open list stays open, the focus stays, what did not change is the same."""
    first = overview(broken=False)
    page.publish(first)
    browser.open(serve(page=page) + "/")
    browser.until("document.querySelector('.chart') !== null")
    browser.run("document.querySelector('details summary').click()")
    browser.run("document.querySelector('details summary').focus()")
    browser.run("void (window.kept = document.querySelector('.checks .rows'))")

    second = copy.deepcopy(first)
    second["runs"][0]["step"], second["runs"][0]["gauges"]["progress"] = 500, 0.5
    page.publish(second)
    browser.until("document.body.innerText.includes('step 500 of 1,000')")

    assert browser.run("document.querySelector('details').open")
    assert browser.run("document.activeElement.tagName") == "SUMMARY"
    assert browser.run("window.kept === document.querySelector('.checks .rows')")
    page.publish(overview())
    browser.until("document.title.startsWith('▲ 1')")
    assert browser.run("document.querySelector('#alert').textContent") == "llama-7b: Loss NaN or infinite"


def test_a_hidden_tab_asks_for_nothing(serve, browser, page):
    """It stops when it is hidden, and asks at once when it is seen again."""
    page.publish(overview())
    browser.open(serve(page=page) + "/")
    browser.until("document.querySelector('.chart') !== null")
    hide = "Object.defineProperty(document, 'hidden', {{value: {}, configurable: true}});"
    browser.run(hide.format("true") + "document.dispatchEvent(new Event('visibilitychange'))")
    browser.run("new Promise((done) => setTimeout(done, 300))")
    browser.requests.clear()
    browser.run("new Promise((done) => setTimeout(done, 2500))")

    assert browser.requests == []

    browser.run(hide.format("false") + "document.dispatchEvent(new Event('visibilitychange'))")
    browser.run("new Promise((done) => setTimeout(done, 300))")
    assert len(browser.requests) == 1


def test_an_exporter_that_is_gone_is_said(browser, page, store):
    """The last numbers stay, marked as old."""
    from trainvitals.serve.app import make_app
    from trainvitals.serve.server import Server

    page.publish(overview())
    server = Server(make_app(store, page), listen_address="127.0.0.1:0")
    try:
        browser.open(server.start() + "/")
        browser.until("document.querySelector('.chart') !== null")
    finally:
        server.stop()

    browser.until("document.querySelector('#status.stale') !== null")

    assert "no answer since" in browser.text()
    assert "llama-7b" in browser.text()


def test_the_language_is_chosen_and_remembered(serve, browser, page):
    """English in an English browser; Chinese at a click, and after a reload."""
    page.publish(overview())
    url = serve(page=page) + "/"
    browser.open(url)
    browser.until("document.querySelector('.finding a') !== null")
    assert browser.run("document.documentElement.lang") == "en"

    browser.run("document.querySelector('[data-language=zh]').click()")
    assert "检查该批次。" in browser.text()
    browser.open("about:blank")
    browser.open(url)
    browser.until("document.querySelector('.finding a') !== null")

    text = browser.text()
    assert browser.run("document.documentElement.lang") == "zh-CN"
    assert browser.run("document.querySelector('[data-language=zh]').getAttribute('aria-pressed')") == "true"
    for words in ("进度", "学习", "效率", "健康", "损失 NaN 或无穷", "检查清单", "最近事件", "设备"):
        assert words in text, words
    browser.run("document.querySelector('[data-language=en]').click()")


def test_a_chinese_browser_gets_chinese(serve, browser, page):
    """Where nobody chose, the browser's languages decide."""
    page.publish(overview())
    browser.call("Emulation.setUserAgentOverride", userAgent="test", acceptLanguage="zh-CN,en")
    try:
        browser.open(serve(page=page) + "/")
        browser.until("document.querySelector('.chart') !== null")
        assert "损失与步数" in browser.text()
    finally:
        browser.call("Emulation.setUserAgentOverride", userAgent="test", acceptLanguage="en")


def test_without_a_run_the_page_says_what_to_do(serve, browser, page):
    """Three ways to get one, and what to do when it does not appear."""
    page.publish(Overview().snapshot(time.time()))
    browser.open(serve(page=page) + "/")
    browser.until("document.querySelector('.empty h2') !== null")

    text = browser.text()

    for words in (
        "No run on this node yet",
        "trainvitals.init(",
        "trainvitals run -- ",
        "trainvitals follow",
        "doctor",
    ):
        assert words in text, words


@pytest.mark.parametrize("size", [(390, 844), (320, 568), (1280, 800)])
def test_nothing_is_wider_than_the_screen(serve, browser, page, size):
    """A phone scrolls down only, also with a name without a blank and all lists open."""
    page.publish(overview(3, name="x" * 200))
    width, height = size
    browser.look(width=width, height=height, phone=width < 500)
    browser.open(serve(page=page) + "/")
    browser.until("document.querySelector('.chart') !== null")
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")

    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("window.innerWidth") == width


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read_on_its_ground(serve, browser, page, dark):
    """WCAG 2.1 AA, 1.4.3: a contrast of 4.5 for each text, in the dark and in the light."""
    page.publish(overview(2))
    browser.look(dark=dark)
    browser.open(serve(page=page) + "/")
    browser.until("document.querySelector('.finding a') !== null")
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")

    worst = browser.run(CONTRAST)

    assert worst[0] >= 4.5, worst
    back = browser.run("getComputedStyle(document.body).backgroundColor")
    assert back == ("rgb(15, 19, 24)" if dark else "rgb(244, 246, 248)")


#: The lowest contrast of a text with its ground, and that text.
CONTRAST = """
(() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (color) => {
    const [r, g, b] = color.slice(0, 3).map((part) => {
      const share = part / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  let worst = [99, ""];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || !node.checkVisibility() || node.closest("noscript, title")) continue;
    const style = getComputedStyle(node);
    const [one, other] = [light(parse(node.closest("svg") ? style.fill : style.color)), light(ground(node))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < worst[0]) worst = [ratio, texts.currentNode.textContent];
  }
  return worst;
})()
"""


def test_a_keyboard_and_a_screen_reader_get_along(serve, browser, page):
    """Everything that can be used can be focused; pictures have words; headings go down one level at a time."""
    page.publish(overview(2))
    browser.open(serve(page=page) + "/")
    browser.until("document.querySelector('.finding a') !== null")

    assert browser.run("[...document.querySelectorAll('svg:not([aria-hidden])')].every((one) => one.ariaLabel)")
    assert browser.run("[...document.querySelectorAll('a, button, summary')].every((one) => one.tabIndex >= 0)")
    levels = browser.run(
        "[...document.querySelectorAll('h1, h2, h3, h4')].filter((one) => one.checkVisibility())"
        ".map((one) => Number(one.tagName[1]))"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert browser.run("document.querySelectorAll('main, header, footer').length") == 3
    assert browser.run("[...document.querySelectorAll('section[data-run]')].every((one) => one.ariaLabel)")


def test_many_runs_are_drawn_in_a_moment(serve, browser, page):
    """64 runs: a list of them first, those that ask for somebody on top, and no errors."""
    page.publish(overview(64))
    browser.open(serve(page=page) + "/")
    browser.until("document.querySelectorAll('.chart').length === 64")

    assert browser.run("document.querySelectorAll('#index li').length") == 64
    assert browser.problems == []


def test_it_works_behind_a_password(serve, browser, page, tmp_path, hash_of):
    """The browser sends what it was given for the page with each request of the page."""
    config = tmp_path / "web.yml"
    config.write_text(f"basic_auth_users:\n  ops: {hash_of('secret')}\n")
    page.publish(overview())
    url = serve(page=page, config=config)

    browser.open(url.replace("http://", "http://ops:secret@") + "/")
    browser.until("document.querySelector('.chart') !== null")

    assert "llama-7b" in browser.text()
