"""What a scrape costs the node: the real exporter with 8 devices and 8 ranks, scraped as Prometheus does it.

    python benchmarks/scrape.py [--scrapes N] [--check]

The devices are simulated, the ranks are processes that report 16 values ten times a second.
The scraper keeps its connection, asks for gzip and comes at all phases of the collecting loop.
In turn with it, it fetches the same bytes from the standard library's HTTP server: the unit for another machine.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import http.client
import http.server
import os
import random
import re
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import psutil

RANKS = 8
DEVICES = 8
STEPS_PER_SECOND = 10
#: What Prometheus 2.42 sends.
HEADERS = {
    "Accept": "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "Accept-Encoding": "gzip",
    "User-Agent": "Prometheus/2.42.0",
    "X-Prometheus-Scrape-Timeout-Seconds": "10",
}
#: Targets.
MOST_MILLISECONDS = 10.0
MOST_MEBIBYTES = 80.0
#: Mean seconds between two scrapes; between the rounds of the collectors lie five seconds.
PAUSE = 0.02
START_SECONDS = 60.0


def train() -> None:
    """Report steps until standard input ends: the life of one rank."""
    import trainvitals  # noqa: PLC0415

    if not trainvitals.init(run="benchmark", target_steps=1_000_000):
        raise SystemExit("the probe does not record here")
    noise = random.Random(os.environ["RANK"])
    step = 0
    while not select.select([sys.stdin], [], [], 1 / STEPS_PER_SECOND)[0]:
        step += 1
        values = {f"value_{i}": noise.random() for i in range(12)}
        trainvitals.step(
            step, {"loss": 2.0 + noise.random(), "learning_rate": 3e-4, "grad_norm": 1.0, "tokens": 4096, **values}
        )


def serve_bytes() -> None:
    """Answer every request with what came on standard input: the bare comparison."""
    body = sys.stdin.buffer.read()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"listening on http://127.0.0.1:{server.server_port}", file=sys.stderr, flush=True)
    server.serve_forever()


@contextlib.contextmanager
def ranks(spool: str) -> Iterator[None]:
    """Keep the ranks alive."""
    environment = {**os.environ, "TRAINVITALS_DIR": spool, "WORLD_SIZE": str(RANKS)}
    children = [
        subprocess.Popen(
            [sys.executable, __file__, "--train"],
            stdin=subprocess.PIPE,
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(RANKS)
    ]
    try:
        yield
    finally:
        for child in children:
            child.communicate()


@contextlib.contextmanager
def server(command: list[str], body: bytes = b"") -> Iterator[tuple[psutil.Process, http.client.HTTPConnection]]:
    """Run a server that says where it listens, and connect to it."""
    with tempfile.TemporaryFile("w+b") as log:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log)
        assert child.stdin is not None
        child.stdin.write(body)
        child.stdin.close()
        try:
            place = re.search(
                rb"listening on http://([\d.]+):(\d+)", wait_for(log.fileno(), rb"listening on \S+\n", child)
            )
            assert place is not None
            connection = http.client.HTTPConnection(place[1].decode(), int(place[2]), timeout=10)
            yield psutil.Process(child.pid), connection
            connection.close()
        finally:
            child.terminate()
            child.wait(timeout=15)


def wait_for(descriptor: int, pattern: bytes, child: subprocess.Popen[bytes]) -> bytes:
    """Return what a child wrote to a file, as soon as it holds ``pattern``."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        written = os.pread(descriptor, 1 << 16, 0)
        if re.search(pattern, written):
            return written
        if child.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"{' '.join(child.args)} did not start:\n{written.decode(errors='replace')}")  # type: ignore[arg-type]
        time.sleep(0.05)


def fetch(connection: http.client.HTTPConnection) -> tuple[float, bytes]:
    """Scrape once; return milliseconds and the compressed body."""
    begun = time.perf_counter()
    connection.request("GET", "/metrics", headers=HEADERS)
    response = connection.getresponse()
    body = response.read()
    took = (time.perf_counter() - begun) * 1000
    if response.status != 200:
        raise RuntimeError(f"status {response.status}")
    return took, body


def wait_for_ranks(connection: http.client.HTTPConnection) -> bytes:
    """Return the first scrape that shows every rank and device at work."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(RuntimeError):
            body = fetch(connection)[1]
            text = gzip.decompress(body)
            if text.count(b"\ntrainvitals_loss{") == RANKS and text.count(b"\ntrainvitals_device_up{") >= DEVICES:
                return body
        time.sleep(0.2)
    raise SystemExit("the exporter does not show all ranks and devices")


def cpu_seconds(process: psutil.Process) -> float:
    """Return the processor time of a process and its children."""
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(one.user + one.system for one in times)


@dataclass
class Result:
    """What was measured; milliseconds per scrape, and of the exporter's process group."""

    scrapes: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    loop_share: float = 0.0
    cpu_per_scrape: float = 0.0
    rss: list[tuple[str, float]] = field(default_factory=list)
    body: bytes = b""

    def p99(self) -> float:
        """The target's figure."""
        return statistics.quantiles(self.scrapes, n=100, method="inclusive")[98]

    def mebibytes(self) -> float:
        """Resident memory of the exporter and its children."""
        return sum(size for _, size in self.rss)


def measure(scrapes: int, idle: float, spool: str) -> Result:
    """Run everything and measure."""
    result = Result()
    command = [sys.executable, "-m", "trainvitals", "exporter", "--web.listen-address", "127.0.0.1:0"]
    command += ["--spool.folders", spool, "--simulate-devices", str(DEVICES), "--log.level", "info"]
    with ranks(spool), server(command) as (exporter, connection):
        result.body = wait_for_ranks(connection)
        result.loop_share = _share(exporter, idle)
        with server([sys.executable, __file__, "--serve-bytes"], result.body) as (_, bare):
            fetch(bare)
            pauses = random.Random(0)
            before, begun = cpu_seconds(exporter), time.monotonic()
            for _ in range(scrapes):
                result.bare.append(fetch(bare)[0])
                took, result.body = fetch(connection)
                result.scrapes.append(took)
                time.sleep(pauses.uniform(0, 2 * PAUSE))
            used = cpu_seconds(exporter) - before - result.loop_share * (time.monotonic() - begun)
        result.cpu_per_scrape = used / scrapes * 1000
        family = [exporter, *exporter.children(recursive=True)]
        result.rss = [(" ".join(one.cmdline()[1:4]), one.memory_info().rss / 2**20) for one in family]
    return result


def _share(process: psutil.Process, seconds: float) -> float:
    """Return the share of a core that a process and its children use while nobody scrapes."""
    before, begun = cpu_seconds(process), time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds(process) - before) / (time.monotonic() - begun)


def report(result: Result) -> bool:
    """Print what was measured; return whether every target was reached."""
    text = gzip.decompress(result.body)
    series = sum(not line.startswith(b"#") for line in text.splitlines())
    print(
        f"{DEVICES} simulated devices, {RANKS} ranks of 16 values at {STEPS_PER_SECOND} steps/s: {series} series, ",
        end="",
    )
    print(f"{len(text):,} bytes, {len(result.body):,} compressed; {len(result.scrapes)} scrapes\n")
    print("| | p50 ms | p99 ms | max ms |\n|---|--:|--:|--:|")
    for title, times in (("the exporter", result.scrapes), ("the same bytes from http.server", result.bare)):
        cuts = statistics.quantiles(times, n=100, method="inclusive")
        print(f"| {title} | {cuts[49]:.2f} | {cuts[98]:.2f} | {max(times):.2f} |")
    print(f"\n- CPU per scrape: {result.cpu_per_scrape:.2f} ms")
    print(f"- CPU of the collecting loop, devices' processes included: {result.loop_share * 100:.2f} % of a core")
    for name, size in result.rss:
        print(f"- RSS of {name}: {size:.1f} MiB")
    verdicts = (
        (f"p99 {result.p99():.2f} ms, target under {MOST_MILLISECONDS:g}", result.p99() < MOST_MILLISECONDS),
        (
            f"RSS in all {result.mebibytes():.1f} MiB, target under {MOST_MEBIBYTES:g}",
            result.mebibytes() < MOST_MEBIBYTES,
        ),
    )
    for text_of, is_reached in verdicts:
        print(f"- {'reached' if is_reached else 'MISSED'}: {text_of}")
    return all(is_reached for _, is_reached in verdicts)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scrapes", type=int, default=1000)
    parser.add_argument("--idle", type=float, default=30.0, help="seconds without scrapes, for the cost of the loop")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--serve-bytes", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        train()
    elif arguments.serve_bytes:
        serve_bytes()
    else:
        spool = tempfile.mkdtemp(prefix="trainvitals-bench-", dir="/dev/shm")
        try:
            is_reached = report(measure(arguments.scrapes, arguments.idle, spool))
        finally:
            shutil.rmtree(spool)
        return int(arguments.check and not is_reached)
    return 0


if __name__ == "__main__":
    sys.exit(main())
