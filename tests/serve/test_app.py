"""The answers of the exporter, from a real server."""

from __future__ import annotations

import gzip

import pytest

from trainvitals.serve.app import accepts_gzip
from trainvitals.serve.snapshot import SnapshotStore


def test_before_the_first_snapshot_only_the_process_is_healthy(serve, client):
    """Scrapes and readiness are 503 until there are values, so that Prometheus sees a target that is down."""
    store = SnapshotStore()
    url = serve(store=store)

    assert [client.get(url + path).status_code for path in ("/metrics", "/-/ready", "/-/healthy")] == [503, 503, 200]

    store.publish([])

    assert [client.get(url + path).status_code for path in ("/metrics", "/-/ready", "/-/healthy")] == [200, 200, 200]


def test_a_scrape_gets_the_bytes_of_the_snapshot(serve, client, store):
    """The type is that of text format 0.0.4, without which Prometheus 3 refuses a scrape."""
    answer = client.get(serve() + "/metrics", headers={"Accept-Encoding": "identity"})

    assert answer.content == store.current.text
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.headers["Vary"] == "Accept-Encoding"
    assert "Content-Encoding" not in answer.headers
    assert "Server" not in answer.headers


def test_a_scrape_is_compressed_when_the_client_takes_it(serve, client, store):
    """The headers of Prometheus get the bytes that were compressed with the snapshot."""
    headers = {
        "Accept": "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.4,*/*;q=0.3",
        "Accept-Encoding": "gzip",
    }
    with client.stream("GET", serve() + "/metrics", headers=headers) as answer:
        raw = b"".join(answer.iter_raw())

    assert answer.headers["Content-Encoding"] == "gzip"
    assert raw == store.current.gzipped
    assert gzip.decompress(raw) == store.current.text


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("*", True),
        ("", False),
        ("identity", False),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("*, gzip;q=0", False),
        ("br", False),
    ],
)
def test_gzip_is_sent_to_those_who_take_it(header, accepted):
    """Quality 0 forbids an encoding, and a name counts more than the star."""
    assert accepts_gzip(header) is accepted


@pytest.mark.parametrize("path", ["/", "/metrics", "/-/healthy", "/-/ready"])
def test_head_has_the_headers_and_no_body(serve, client, path):
    """HEAD tells the length that GET would send."""
    url = serve() + path

    head, get = client.head(url), client.get(url)

    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["Content-Length"] == get.headers["Content-Length"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_other_methods_are_refused(serve, client, method):
    """Nothing can be written here."""
    answer = client.request(method, serve() + "/metrics")

    assert answer.status_code == 405
    assert sorted(answer.headers["Allow"].split(", ")) == ["GET", "HEAD"]


@pytest.mark.parametrize("path", ["/nothing", "/metrics/", "/-/reload", "/%2e%2e/etc/passwd", "//metrics"])
def test_unknown_paths_are_not_found(serve, client, path):
    """There are no files and no redirects."""
    assert client.get(serve() + path).status_code == 404
