"""Users with bcrypt passwords, and headers, from a real server."""

from __future__ import annotations

import asyncio
import base64
import os

import bcrypt
import pytest

from trainvitals.serve import auth
from trainvitals.serve.auth import BusyError, Passwords

PLAIN = "basic_auth_users.prometheus: expected a bcrypt hash such as $2y$10$..., as from htpasswd -nBC 10 NAME"


@pytest.fixture
def web(tmp_path):
    """A function that writes web.yml with users and headers and returns its path."""

    def write(users, headers=""):
        lines = "".join(f"  {name}: {hashed}\n" for name, hashed in users.items())
        (tmp_path / "new").write_text(f"basic_auth_users:\n{lines}{headers}")
        os.replace(tmp_path / "new", tmp_path / "web.yml")
        return tmp_path / "web.yml"

    return write


@pytest.fixture
def checks(monkeypatch):
    """The list of the hashes that bcrypt was asked about."""
    asked = []
    check = bcrypt.checkpw
    monkeypatch.setattr(
        bcrypt, "checkpw", lambda password, hashed: asked.append(hashed.decode()) or check(password, hashed)
    )
    return asked


@pytest.mark.parametrize("path", ["/", "/metrics", "/-/healthy", "/-/ready", "/nothing"])
def test_every_path_asks_for_a_password(serve, client, web, hash_of, path):
    """Without one the answer is 401 and says which scheme is meant."""
    answer = client.get(serve(config=web({"prometheus": hash_of("right")})) + path)

    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == 'Basic realm="trainvitals", charset="UTF-8"'


ATTEMPTS = {
    "prometheus:right": 200,
    "müller:pass:wört": 200,
    "prometheus:wrong": 401,
    "prometheus:": 401,
    "prometheus:pass:wört": 401,
    "nobody:right": 401,
    ":": 401,
    "prometheus:right\0": 401,
    "prometheus:" + "x" * 5000: 401,
}


@pytest.mark.parametrize("credentials", ATTEMPTS, ids=lambda credentials: credentials[:24])
def test_users_get_in_with_their_own_password(serve, client, web, hash_of, credentials):
    """Right and wrong passwords, foreign ones, and those that bcrypt cannot take; the second time as the first."""
    url = serve(config=web({"prometheus": hash_of("right"), "müller": hash_of("pass:wört")}))
    header = {"Authorization": "Basic " + base64.b64encode(credentials.encode()).decode()}

    statuses = [client.get(url + "/metrics", headers=header).status_code for _ in range(2)]

    assert statuses == [ATTEMPTS[credentials]] * 2


@pytest.mark.parametrize(
    "header", ["Basic", "Basic !!!", "Basic cHJvbWV0aGV1cw==", "Basic //////==", "Bearer abc", "basic", ""]
)
def test_a_header_that_is_no_basic_authentication_is_refused(serve, client, web, hash_of, header):
    """Not base64, no colon, no Unicode, another scheme: 401 and no error."""
    url = serve(config=web({"prometheus": hash_of("right")}))

    assert client.get(url + "/metrics", headers={"Authorization": header}).status_code == 401


def test_users_change_without_a_restart(serve, client, web, hash_of, caplog):
    """A new password counts from the next request on, the old one no longer, and a bad file changes nothing."""
    path = web({"prometheus": hash_of("old")})
    url = serve(config=path)

    def status(password):
        return client.get(url + "/metrics", auth=("prometheus", password)).status_code

    assert (status("old"), status("new")) == (200, 401)

    web({"prometheus": hash_of("new")})
    assert (status("old"), status("new")) == (401, 200)

    web({"prometheus": "plain text"})
    assert (status("old"), status("new")) == (401, 200)
    path.unlink()
    assert (status("old"), status("new")) == (401, 200)
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: {PLAIN}; the settings from before stay in force",
        f"{path}: No such file or directory; the settings from before stay in force",
    ]

    web({"other": hash_of("new")})
    assert status("new") == 401


def test_a_right_password_is_checked_once(serve, client, web, hash_of, checks):
    """Bcrypt is slow on purpose; a scrape every few seconds must not pay for it each time."""
    hashed = hash_of("right")
    url = serve(config=web({"prometheus": hashed}))

    for _ in range(5):
        assert client.get(url + "/metrics", auth=("prometheus", "right")).status_code == 200

    assert checks == [hashed]


def test_an_unknown_user_costs_a_check(serve, client, web, hash_of, checks):
    """The time of the answer does not tell which users exist, and no second answer is quicker."""
    hashed = hash_of("right")
    url = serve(config=web({"prometheus": hashed}))

    for user in ("nobody", "nobody", "prometheus", "prometheus"):
        assert client.get(url + "/metrics", auth=(user, "wrong")).status_code == 401
    assert client.get(url + "/metrics", auth=("nobody", "right")).status_code == 401

    assert checks == [hashed] * 5


def test_what_is_remembered_is_bounded(hash_of):
    """The oldest right password goes when there are too many."""
    passwords = Passwords()
    users = {str(number): hash_of("x") for number in range(auth.REMEMBERED + 1)}

    async def check_all():
        return [await passwords.right(users, user, b"x") for user in users]

    try:
        assert asyncio.run(check_all()) == [True] * len(users)
        assert len(passwords._right) == auth.REMEMBERED
    finally:
        passwords.close()


def test_one_check_serves_all_who_ask_the_same_and_too_many_are_refused(hash_of, checks):
    """A flood of guesses fills a short queue and then gets an error; it does not pile up work."""
    passwords = Passwords()
    users = {"prometheus": hash_of("x")}

    async def guess(count, password):
        tasks = [passwords.right(users, "prometheus", password(number)) for number in range(count)]
        return await asyncio.gather(*tasks, return_exceptions=True)

    try:
        same = asyncio.run(guess(50, lambda _: b"x"))
        assert same == [True] * 50
        assert len(checks) == 1
        different = asyncio.run(guess(auth.WAITING + 3, lambda number: str(number).encode()))
        assert [type(answer) for answer in different] == [bool] * auth.WAITING + [BusyError] * 3
    finally:
        passwords.close()


@pytest.mark.parametrize(("path", "status"), [("/", 200), ("/metrics", 200), ("/nothing", 404)])
def test_every_answer_has_the_headers_of_the_file(serve, client, tmp_path, path, status):
    """They replace our own, and answers that are errors have them too."""
    file = tmp_path / "web.yml"
    file.write_text(
        "http_server_config:\n  headers:\n    X-Frame-Options: deny\n    Content-Security-Policy: default-src 'self'\n"
    )

    answer = client.get(serve(config=file) + path)

    assert answer.status_code == status
    assert answer.headers["X-Frame-Options"] == "deny"
    assert answer.headers.get_list("Content-Security-Policy") == ["default-src 'self'"]


def test_a_refusal_has_the_headers_too(serve, client, web, hash_of):
    """401 is an answer like any other."""
    headers = "http_server_config:\n  headers:\n    Strict-Transport-Security: max-age=31536000\n"
    url = serve(config=web({"prometheus": hash_of("right")}, headers))

    answer = client.get(url + "/metrics")

    assert (answer.status_code, answer.headers["Strict-Transport-Security"]) == (401, "max-age=31536000")
