"""One of four ranks, two on each "node": trains with gloo and says behind which step a setting was changed."""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist

import trainvitals

if __name__ == "__main__":
    dist.init_process_group("gloo")
    trainvitals.init(run="wide")
    step = 0

    def change(value: float) -> None:
        """Say so."""
        print(f"lr {value} {step}", flush=True)

    def save(number: int) -> str:
        """Take as long as a checkpoint does."""
        time.sleep(0.3)
        return f"/ckpt/{number}"

    trainvitals.knob("lr", change, least=0.0, most=1.0)
    trainvitals.on_checkpoint(save)
    ones = torch.ones(4)
    print("ready", flush=True)
    while not trainvitals.should_stop():
        dist.all_reduce(ones.clone())
        time.sleep(float(sys.argv[1]))
        step += 1
        trainvitals.step(step, loss=1.0)
    print(f"end {step}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
