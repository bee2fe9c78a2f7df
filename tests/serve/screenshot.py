"""Takes the pictures of docs/images: a real exporter with two simulated devices, and two ranks whose loss becomes NaN.

    python tests/serve/screenshot.py [FOLDER]

Needs Chromium and takes a minute.
"""

from __future__ import annotations

import math
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import chromium

IMAGES = Path(__file__).parents[2] / "docs" / "images"
#: Name, width, height, dark.
PICTURES = (
    ("page-light", 1280, 800, False),
    ("page-dark", 1280, 800, True),
    ("page-phone-light", 390, 844, False),
    ("page-phone-dark", 390, 844, True),
)
RANKS = 2
LARGEST = 200_000
_STEPS, _SPIKE, _BREAKS = 3000, 1100, 2870


def train(rank: int) -> None:
    """Report a loss that falls, jumps once and becomes NaN; go on until the parent is gone."""
    import trainvitals

    trainvitals.init(run="llama-7b", rank=rank, world_size=RANKS, target_steps=8000, device_uuid=f"SIMULATED-{rank}")
    noise, parent, step = random.Random(rank), os.getppid(), 0
    while os.getppid() == parent:
        step += 1
        with trainvitals.phase("data"):
            time.sleep(0.0005)
        time.sleep(0.004)
        loss = 1.7 + 8.6 * math.exp(-step / 330) + noise.gauss(0, 0.05) + (2.9 if step == _SPIKE else 0.0)
        rate = 3e-4 * min(1.0, step / 300)
        values = {
            "loss": math.nan if step > _BREAKS else loss,
            "learning_rate": rate,
            "grad_norm": noise.gauss(0.8, 0.05),
        }
        trainvitals.step(step, values, tokens=8192)
        if step % 700 == 0:
            if rank == 0:
                trainvitals.evaluate(step, loss=loss + 0.1)
            with trainvitals.checkpoint(step, "/checkpoints"):
                time.sleep(0.25)


def take(url: str, folder: Path) -> None:
    """Write the pictures."""
    with chromium.browser(str(chromium.program())) as browser:
        for name, width, height, dark in PICTURES:
            browser.look(width=width, height=height, dark=dark, phone=width < 500)
            browser.open(url)
            browser.until("document.querySelector('.finding a') && document.querySelector('.chart') !== null")
            path = folder / f"{name}.png"
            browser.screenshot(path)
            size = path.stat().st_size
            print(f"{path}: {size:,} bytes")
            if size > LARGEST:
                raise SystemExit("too large for a README")


def main() -> None:
    """Start everything, wait for the finding and take the pictures."""
    if sys.argv[1:2] == ["--train"]:
        train(int(sys.argv[2]))
        return
    if chromium.program() is None:
        raise SystemExit("Chromium is missing; on Debian: apt-get install chromium fonts-dejavu")
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="trainvitals-screenshot-", ignore_cleanup_errors=True) as spool:
        children = []
        try:
            command = [sys.executable, "-m", "trainvitals", "exporter", "--web.listen-address=127.0.0.1:0"]
            command += [f"--spool.folders={spool}", "--simulate-devices=2", "--collect.interval=1s"]
            environment = {**os.environ, "TRAINVITALS_DIR": spool, "XDG_STATE_HOME": spool}
            exporter = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
            children.append(exporter)
            trainer = [sys.executable, __file__, "--train"]
            children += [subprocess.Popen([*trainer, str(rank)], env=environment) for rank in range(RANKS)]
            assert exporter.stderr is not None
            place = next(found for line in exporter.stderr if (found := re.search(r"listening on (\S+)", line)))
            time.sleep(_STEPS * 0.0065)
            take(place[1] + "/", folder)
        finally:
            for child in children:
                child.terminate()
            for child in children:
                child.wait(timeout=20)


if __name__ == "__main__":
    main()
