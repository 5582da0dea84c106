"""Trains with Hugging Face's Trainer on the CPU: python/examples/hf_trainer.py FOLDER OUTPUT

With --resume, a second run continues with the batch after the last checkpoint.
"""

from __future__ import annotations

import argparse

import transformers
import warpfeed
import warpfeed.hf


class Trainer(warpfeed.hf.Loaders, transformers.Trainer):  # type: ignore[misc]
    pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("output")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    options = {"batch_size": 16, "normalize": "imagenet", "collate": warpfeed.collate.hf}
    train = warpfeed.Loader(args.folder, shuffle=True, seed=42, augment=warpfeed.Augment.train(32), drop_last=True, **options)
    val = warpfeed.Loader(args.folder, augment=warpfeed.Augment.eval(40, 32), **options)
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], num_labels=len(train.classes))
    arguments = transformers.TrainingArguments(
        args.output, max_steps=args.steps, save_steps=2, per_device_train_batch_size=16, use_cpu=True, report_to="none",
        disable_tqdm=True,
    )  # fmt: skip
    model = transformers.ResNetForImageClassification(config)
    trainer = Trainer(model=model, args=arguments, train_dataset=train, eval_dataset=val)
    trainer.train(resume_from_checkpoint=args.resume)
    print(f"loss {trainer.evaluate()['eval_loss']:.3f} after {trainer.state.global_step} steps")


if __name__ == "__main__":
    main()
