"""The Hugging Face Trainer: one line to add, ``trainvitals.auto()``.

Run it with ``python examples/train_huggingface.py`` and look at ``trainvitals exporter``.
"""

from __future__ import annotations

import os
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # Nothing is downloaded: the model is made here.

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

import trainvitals

WORDS = 64
LENGTH = 16


class Counting(Dataset[dict[str, torch.Tensor]]):
    """Texts that count upwards from somewhere."""

    def __init__(self, size: int, seed: int) -> None:
        starts = torch.randint(WORDS, (size, 1), generator=torch.Generator().manual_seed(seed))
        self.texts = (starts + torch.arange(LENGTH)) % WORDS

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.texts[index], "labels": self.texts[index]}


def main(folder: str) -> None:
    """Train a very small GPT-2; checkpoints go to the folder."""
    set_seed(7)
    config = GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2)
    config.bos_token_id = config.eos_token_id = 0
    settings = TrainingArguments(
        output_dir=folder,
        max_steps=20,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=1e-2,
        warmup_steps=5,
        logging_steps=5,
        eval_strategy="steps",
        eval_steps=10,
        save_steps=10,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=GPT2LMHeadModel(config), args=settings, train_dataset=Counting(400, 1), eval_dataset=Counting(32, 2)
    )
    trainer.train()
    trainer.save_model(os.path.join(folder, "last"))


if __name__ == "__main__":
    trainvitals.auto()
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(temporary)
