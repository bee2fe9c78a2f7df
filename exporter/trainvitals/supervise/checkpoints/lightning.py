"""Lightning: one ``.ckpt`` file of ``torch.save`` with a ``global_step`` in it."""

from __future__ import annotations

from trainvitals.supervise.checkpoints.torch_zip import TorchZip


class Lightning(TorchZip):
    """Files of ``Trainer.save_checkpoint``; ``last.ckpt`` has its step only in itself."""

    name = "Lightning"
    endings = (".ckpt",)
