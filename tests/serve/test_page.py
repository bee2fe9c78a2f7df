"""The page as a server sends it: files, JSON, headers, tags; the browser is in test_browser.py."""

from __future__ import annotations

import gzip
import json
import re

import pytest

from trainvitals import detect
from trainvitals._version import __version__
from trainvitals.collect import data, log_errors
from trainvitals.detect import stall, straggler
from trainvitals.serve.page import FILES, Page, static_files

PATHS = ["/", "/page/page.css", "/page/page.js", "/page/texts.json", "/api/v1/overview", "/api/v1/advice"]


@pytest.fixture
def page():
    """A page that knows one run, whose name is no markup."""
    page = Page(2.5, lambda: {"stall": {"action": ["look", "查看"], "runbook": "https://example.org/stall"}})
    page.publish({"time": 7.5, "runs": [{"run": "llama<script>"}], "devices": []})
    return page


def test_the_page_and_all_that_it_loads_is_there(serve, client, page):
    """Types are those that a browser insists on with nosniff."""
    url = serve(page=page)

    types = [client.get(url + path).headers["Content-Type"] for path in PATHS]

    assert types == [
        "text/html; charset=utf-8",
        "text/css; charset=utf-8",
        "text/javascript; charset=utf-8",
        "application/json",
        "application/json",
        "application/json",
    ]


@pytest.mark.parametrize("path", PATHS)
def test_each_answer_of_the_page_forbids_all_but_its_own(serve, client, page, path):
    """Nothing inline, nothing from elsewhere, in no frame, with no referrer."""
    headers = client.get(serve(page=page) + path).headers

    assert headers["Content-Security-Policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-cache"


@pytest.mark.parametrize("path", PATHS)
def test_what_did_not_change_is_not_sent_again(serve, client, page, path):
    """A browser that has the entity tag gets 304 without a body; another tag gets the whole."""
    url = serve(page=page) + path
    tag = client.get(url).headers["ETag"]

    same = client.get(url, headers={"If-None-Match": f'"other", W/{tag}'})
    other = client.get(url, headers={"If-None-Match": '"other"'})

    assert (same.status_code, same.content, same.headers["ETag"]) == (304, b"", tag)
    assert other.status_code == 200


def test_a_new_snapshot_has_another_tag(serve, client, page):
    """The tag is that of the content."""
    url = serve(page=page) + "/api/v1/overview"
    first = client.get(url).headers["ETag"]

    page.publish({"time": 10.0, "runs": [], "devices": []})
    answer = client.get(url, headers={"If-None-Match": first})

    assert answer.status_code == 200
    assert answer.json() == {"version": __version__, "interval": 2.5, "time": 10.0, "runs": [], "devices": []}


def test_json_is_compressed_when_the_client_takes_it(serve, client, page):
    """The bytes are those that were compressed with the snapshot."""
    url = serve(page=page) + "/api/v1/overview"
    with client.stream("GET", url, headers={"Accept-Encoding": "gzip"}) as answer:
        raw = b"".join(answer.iter_raw())

    assert gzip.decompress(raw) == page.current().body
    assert json.loads(page.current().body)["runs"] == [{"run": "llama<script>"}]


def test_before_the_first_snapshot_the_page_is_there_and_its_numbers_are_not(serve, client):
    """The page asks again; 503 says that there is nothing yet."""
    url = serve(page=Page())

    assert client.get(url + "/").status_code == 200
    assert client.get(url + "/api/v1/overview").status_code == 503


def test_what_nobody_looks_at_is_not_rendered():
    """A snapshot is rendered ahead for a minute after somebody asked, and once."""
    now = [1000.0]
    page = Page(clock=lambda: now[0])
    page.publish({"runs": []})
    assert page._current[1] is None

    first = page.current()
    assert page.current() is first
    page.publish({"runs": [1]})
    ahead = page._current[1]
    assert page.current() is ahead

    now[0] += 61.0
    page.publish({"runs": [2]})
    assert page._current[1] is None


def test_what_costs_something_is_made_when_it_is_rendered():
    """A curve is drawn by whoever looks, once per snapshot."""
    calls = []
    page = Page()
    page.publish({"curve": lambda: calls.append(1) or {"steps": [1]}})
    assert calls == []

    assert json.loads(page.current().body)["curve"] == {"steps": [1]}
    page.current()
    assert calls == [1]


@pytest.mark.parametrize("odd", ["half \ud800", 2**70])
def test_what_json_knows_and_the_library_does_not_is_rendered_all_the_same(odd):
    """Half a character, and an integer beyond 64 bits."""
    page = Page()
    page.publish({"runs": [odd]})

    assert json.loads(page.current().body)["runs"] == [odd]


def test_advice_that_fails_costs_only_itself():
    """The findings are shown without it, and it is tried again when it is asked for again."""
    answers = iter([RuntimeError(), {"stall": {}}])

    def advise():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    page = Page(advice=advise)

    assert page.advice().body == b"{}"
    assert page.advice().body == page.advice().body == b'{"stall": {}}'


def test_advice_has_both_languages(serve, client, page):
    """What to do, in English and Chinese, by signal."""
    answer = client.get(serve(page=page) + "/api/v1/advice").json()

    assert answer == {"stall": {"action": ["look", "查看"], "runbook": "https://example.org/stall"}}


def test_the_page_has_a_password_when_the_exporter_has_one(serve, client, page, tmp_path, hash_of):
    """The guard stands before the page, its files and its JSON."""
    config = tmp_path / "web.yml"
    config.write_text(f"basic_auth_users:\n  ops: {hash_of('secret')}\n")
    url = serve(page=page, config=config)

    assert [client.get(url + path).status_code for path in PATHS] == [401] * 6
    assert [client.get(url + path, auth=("ops", "secret")).status_code for path in PATHS] == [200] * 6


def test_nothing_in_the_files_is_inline_or_from_elsewhere():
    """No style, script or handler in the markup; the only address is the name of the namespace of SVG."""
    files = {path: answer.body.decode() for path, answer in static_files().items()}

    markup = files[""]
    assert not re.search(r"<style|<script>|\sstyle=|\son\w+=", markup)
    for path, text in files.items():
        allowed = text.replace("http://www.w3.org/2000/svg", "").replace("/^https:\\/\\//.test", "")
        assert "//" not in re.sub(r"^\s*//.*$", "", allowed, flags=re.MULTILINE), path
    assert "url(" not in files["page/page.css"]


def test_text_never_becomes_markup():
    """The script has no way to make markup of a text."""
    script = static_files()["page/page.js"].body.decode()

    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "DOMParser"):
        assert way not in script, way


def test_every_text_has_both_languages():
    """One table; what a detector needs is said in English by the detector."""
    texts = json.loads(static_files()["page/texts.json"].body)

    for key, (english, chinese) in texts.items():
        assert chinese, key
        assert bool(english) is not key.startswith("needs."), key
        assert sorted(re.findall(r"\{\w+\}", english)) == sorted(re.findall(r"\{\w+\}", chinese)), key


def test_every_signal_has_its_words():
    """A detector without a name on the page fails here."""
    texts = json.loads(static_files()["page/texts.json"].body)
    signals = [stall.SIGNAL, straggler.SIGNAL, data.SIGNAL, log_errors.SIGNAL]
    signals += [detector.signal for detector in detect.build()]

    assert [name for name in signals if f"signal.{name}" not in texts or f"needs.{name}" not in texts] == []


def test_every_text_is_used_and_every_used_text_is_there():
    """Neither is left behind when the page changes."""
    files = static_files()
    script = files["page/page.js"].body.decode()
    texts = json.loads(files["page/texts.json"].body)
    whole = set(re.findall(r"""\bt\("([\w.]+)"[,)]""", script))
    made = (
        "signal.",
        "needs.",
        "gauge.",
        "state.",
        "check.",
        "category.",
        "fact.",
        "event.",
        "why.",
        "rank",
        "device.",
    )

    assert whole - texts.keys() == set()
    assert [key for key in texts if key not in script and not key.startswith(made)] == []


def test_the_page_is_small():
    """All files together take less than 20 kB on the wire."""
    files = static_files()

    assert set(files) == set(FILES)
    assert sum(len(answer.gzipped) for answer in files.values()) < 20_000
