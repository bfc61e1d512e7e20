"""Trains a tiny language model, from a configuration and random weights, with the Trainer of transformers and
Determined's callback for it."""

import time

import determined as det
import torch
import transformers
from determined.transformers import DetCallback

TOKENS, LENGTH = 32, 16


class Sequences(torch.utils.data.Dataset):
    """Each counts on from where it begins."""

    def __init__(self, pause: float) -> None:
        self._pause = pause

    def __len__(self) -> int:
        return 2 * TOKENS

    def __getitem__(self, index: int) -> "dict[str, torch.Tensor]":
        time.sleep(self._pause)
        counted = (torch.arange(LENGTH) + index) % TOKENS
        return {"input_ids": counted, "labels": counted}


if __name__ == "__main__":
    torch.set_num_threads(1)
    info = det.get_cluster_info()
    assert info is not None, "this is not a task"
    hparams = info.trial.hparams
    arguments = transformers.TrainingArguments(
        output_dir="out",
        max_steps=hparams["steps"],
        per_device_train_batch_size=4,
        learning_rate=0.01,
        eval_strategy="steps",
        eval_steps=hparams["every"],
        save_steps=hparams["every"],
        logging_steps=hparams["every"],
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    with det.core.init() as context:
        callback = DetCallback(context, arguments)
        print(f"begins from {arguments.resume_from_checkpoint}", flush=True)
        size = {"vocab_size": TOKENS, "n_positions": LENGTH, "n_embd": 16, "n_layer": 1, "n_head": 2}
        trainer = transformers.Trainer(
            model=transformers.GPT2LMHeadModel(transformers.GPT2Config(**size)),
            args=arguments,
            train_dataset=Sequences(hparams["pause"]),
            eval_dataset=Sequences(0.0),
            callbacks=[callback],
        )
        trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)
    print("has trained", flush=True)
