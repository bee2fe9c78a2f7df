"""What must not be told: values with the name of a secret, and texts that look like one.  A rule of thumb, and wide."""

from __future__ import annotations

import re

#: Characters of a text that are looked at; far fewer are ever told.
LOOKED_AT = 2048

_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
#: The last letters of a word of a name that hides what it names, whatever that is, and where it is no number.
_SECRET: tuple[str, ...] = (
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "secrets",
    "credential",
    "credentials",
    "cookie",
    "passcode",
)
_SECRET_TEXT = ("key", "keys", "token", "tokens", "auth", "authorization", "dsn", "webhook", "private", "signature")
#: Words that do so when they stand alone: "compat" is no personal access token.
_SECRET_WORDS = frozenset({"pass", "jwt", "bearer", "sas", "pat", "sig"})
#: The beginnings of well-known tokens, what is encrypted, and ``token=...``.
_SHAPES = (
    r"\b(?:bearer|basic)\s+[\w.~+/=-]{8}|-----BEGIN|(?:token|secret|passw\w*|pwd|api[_-]?key|signature)['\"]?\s*=\s*\S"
    r"|\b(?:hf_|sk-|gh[opsu]_|github_pat_|glpat-|xox[abeprs]-|AKIA|ASIA|eyJ|nvapi-)[\w-]{8}|\bbot\d{5,}:[\w-]{5}"
)
_SHAPE = re.compile(_SHAPES, re.IGNORECASE)
#: Wider, for a text whose loss is no pity: a word and what follows it, an option, a hook of a chat, a signed address.
_LEAK = re.compile(
    _SHAPES + r"|(?:token|key|secret|passw\w*|pwd|auth\w*)['\"]?\s*[=:]\s*\S"
    r"|(?<![\w-])--?[\w-]*(?:token|key|secret|passw\w*|pwd|auth)['\"]?[\s,]+\S|\bpass(?:word|wd|phrase)\s+\S"
    r"|//hooks?\.|/(?:web)?hooks?/\S|[?&](?:sig|sas|auth|key)=|://[^/\s@]*:(?!\d+/)[^/\s@]*/\S*@",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"(?<=://)[^/?#\s]*@")
_QUERY = re.compile(r"(://[^\s?'\"]*)\?[^\s'\"]*")


def words_of(name: str) -> list[str]:
    """Return the words of a name, in small letters: ``hubToken``, ``HUB_TOKEN`` and ``hub.token`` have the same."""
    return [word.lower() for word in _WORDS.findall(name)]


def is_secret(name: str, value: object = "") -> bool:
    """Whether a value must not be told because of its name; numbers may be (``max_tokens``), but for passwords."""
    words = words_of(name)
    if any(word.endswith(_SECRET) for word in words):
        return True
    is_number = isinstance(value, (int, float, type(None)))
    return not is_number and any(word.endswith(_SECRET_TEXT) or word in _SECRET_WORDS for word in words)


def told(text: str) -> str | None:
    """Return a text without the login in an address; None where it looks like a secret."""
    text = _LOGIN.sub("", text[:LOOKED_AT])
    return None if _LEAK.search(text) else text


def masked(text: str) -> str:
    """Return a message or the name of a file without logins and queries of addresses, cut before a secret."""
    text = _QUERY.sub(r"\1", _LOGIN.sub("", text[:LOOKED_AT]))
    match = _SHAPE.search(text)
    return text if match is None else text[: match.start()] + "<hidden>"
