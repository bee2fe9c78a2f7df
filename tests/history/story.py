"""A run whose story is in a journal: eight ranks, one of which was lost; then a bad learning rate."""

from __future__ import annotations

from trainvitals.journal import Attempt, Journal, Run

THEN = 1_796_090_000.0
RUN = "llama"


def phases(seconds: float) -> dict[str, float]:
    """Return how a process spent its time."""
    return {"init": 60.0, "train": seconds - 160.0, "data": 40.0, "checkpoint": 50.0}


def write(path: object, *, node: str = "n1", ranks: int = 8) -> None:
    """Write it."""
    journal = Journal(str(path), node=node, clock=lambda: THEN)
    journal.record_run(
        Run(run=RUN, began=THEN, seen=THEN + 9000, state="running", step=3900, target=10000, world_size=ranks)
    )
    rows = []
    for rank in range(ranks):
        common = {"run": RUN, "node": node, "rank": rank}
        died = Attempt(
            **common, attempt=0, began=THEN + rank / 10, seen=THEN + 5000, ended=THEN + 5000 + rank / 10,
            state="died" if rank == 3 else "failed", first_step=0, last_step=2390, steps=2391, phases=phases(5000),
        )  # fmt: skip
        goes_on = Attempt(
            **common, attempt=1, began=THEN + 5100 + rank / 10, seen=THEN + 9000, state="running", first_step=2301,
            last_step=3900, steps=1600, phases=phases(3900),
        )  # fmt: skip
        journal.record_attempt(died, f"0-{rank}")
        journal.record_attempt(goes_on, f"1-{rank}")
        rows += [(number, rank) for number in range(1, 39)]
        journal.record("data_error", RUN, time=THEN + 6010 + rank / 10, rank=rank, step=2710, text="bad: shard-17.tar")
    for number, rank in rows[:: max(1, ranks // 2)]:
        journal.record(
            "checkpoint", RUN, time=THEN + number * 230 + rank / 100, rank=rank, step=number * 100,
            text="saved in 12 s", details={"action": "save", "ok": True, "seconds": 12.0 + rank / 10},
        )  # fmt: skip
    journal.record("change", RUN, time=THEN + 4000, step=1900, text="dataset version v3 -> v4 at step 1900")
    journal.record("change", RUN, time=THEN + 6000, step=2700, text="learning rate 0.0003 -> 0.003 at step 2700")
    journal.record("change", RUN, time=THEN + 8000, step=3500, text="learning rate 0.003 -> 0.0003 at step 3500")
    journal.record("device", "", time=THEN + 4990, text="XID 79 on device 3: GPU has fallen off the bus")
    journal.record("device", "", time=THEN - 90_000, text="XID 13 of the day before")
    journal.record("log", RUN, time=THEN + 4995, rank=3, step=2390, text="cuda error: launch failure")
    journal.record("finding", RUN, time=THEN + 6200, step=2790, rank=0, text="loss spike: 9.3", details={"signal": "loss_spike"})  # fmt: skip # noqa: E501
    journal.record("over", RUN, time=THEN + 6300, step=2830, text="loss spike is over", details={"signal": "loss_spike"})  # fmt: skip # noqa: E501
    journal.record("finding", RUN, time=THEN + 7000, step=3110, rank=2, text="diverged: 3.1 times its best", details={"signal": "diverged"})  # fmt: skip # noqa: E501
    journal.record_incident(
        RUN, "killed", key="a", attempt=0, detected=THEN + 5003, rank=3, device="3", category="resource",
        last_step=2390, resume_step=2301, steps_lost=90, seconds_lost=188.0, seconds_to_recover=160.0,
        decision="restart: transient", text="SIGKILL of rank 3",
    )  # fmt: skip
    journal.close()
