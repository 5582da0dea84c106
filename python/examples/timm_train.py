"""Runs timm's own train.py with warpfeed's batches: python/examples/timm_train.py TRAIN.PY FOLDER
timm's flags...

    git clone https://github.com/huggingface/pytorch-image-models
    python timm_train.py pytorch-image-models/train.py imagenet --model resnet50 --no-prefetcher \\
        --train-interpolation bicubic --aa rand-m7-mstd0.5-inc1 --mixup 0.1 --cutmix 1.0

`train.py` runs unchanged. Only `timm.data.create_loader` is replaced, by a function that converts
timm's options to options of a `warpfeed.Loader`. If an option without a counterpart is set, the
function fails, unless the option is in `IGNORED`. timm still applies MixUp and CutMix, on the
device.
"""

from __future__ import annotations

import math
import runpy
import sys
from typing import Any

import timm.data
import warpfeed

#: Options that are ignored, because warpfeed has its own threads and random numbers.
IGNORED = {
    "worker_seeding", "persistent_workers", "use_multi_epochs_loader", "batch_choice_schedule", "batch_schedule_spread",
    "batch_schedule_random_mix",
}  # fmt: skip
#: timm's names for interpolation modes, with warpfeed's names.
FILTERS = {"bilinear": "bilinear_exact", "bicubic": "bicubic", "lanczos": "lanczos"}


def train(size: int, options: dict[str, Any]) -> warpfeed.Augment:
    """Returns the counterpart of timm's `transforms_imagenet_train`, and removes its options from
    `options`."""
    augment = warpfeed.Augment.train(size).flip(options.pop("hflip", 0.5)).vertical_flip(options.pop("vflip", 0.0))
    augment = augment.scale(*(options.pop("scale", None) or (0.08, 1.0)))
    augment = augment.ratio(*(options.pop("ratio", None) or (3 / 4, 4 / 3)))
    policy, jitter = options.pop("auto_augment", None), options.pop("color_jitter", 0.4)
    if policy:
        augment = augment.timm(policy, fill=tuple(round(255 * mean) for mean in options["mean"]))
    jitter_probability = options.pop("color_jitter_prob", None)
    if jitter and (not policy or "3a" in policy):
        if not isinstance(jitter, (int, float)):
            raise SystemExit(f"color_jitter={jitter!r}: this example supports a single number")
        amounts = {name: float(jitter) for name in ("brightness", "contrast", "saturation")}
        probability = 1.0 if jitter_probability is None else jitter_probability
        augment = augment.jitter(warpfeed.ColorJitter(**amounts, probability=probability))
    if probability := options.pop("grayscale_prob", None):
        augment = augment.grayscale(probability)
    if probability := options.pop("gaussian_blur_prob", None):
        augment = augment.blur(23, (0.1, 2.0), probability)
    mode, count = options.pop("re_mode", "const"), options.pop("re_count", 1)
    if probability := options.pop("re_prob", 0.0):
        if count != 1:
            raise SystemExit(f"re_count={count}: this example supports one erased rectangle")
        erasing = warpfeed.RandomErasing(probability).scale(0.02, 1 / 3).ratio(0.3, 1 / 0.3)
        augment = augment.erase({"rand": erasing.random_color, "pixel": erasing.noise}.get(mode, lambda: erasing)())
    return augment


def create_loader(dataset: Any, input_size: Any, batch_size: int, is_training: bool = False, **options: Any) -> Any:
    if options.pop("use_prefetcher", True) or options.pop("collate_fn", None) is not None:
        raise SystemExit("timm's prefetcher would normalize and mix the batches again: add --no-prefetcher")
    reader = dataset.reader
    if not isinstance(getattr(reader, "class_to_idx", None), dict) or not hasattr(reader, "root"):
        raise SystemExit(f"{type(reader).__name__}: this example supports class folders only")
    height, width = (input_size, input_size) if isinstance(input_size, int) else input_size[-2:]
    if height != width:
        raise SystemExit(f"images of {height}x{width}: this example supports square images only")
    filter = options.pop("interpolation", "bilinear")
    if filter not in FILTERS:
        raise SystemExit(f"interpolation {filter!r}: expected one of {', '.join(FILTERS)}; set --train-interpolation")
    plain = options.pop("no_aug", False)
    if is_training:
        augment = train(height, options)
    if plain or not is_training:
        shorter = height if is_training else math.floor(height / (options.pop("crop_pct", None) or 0.875))
        augment = warpfeed.Augment.eval(shorter, height)
        if options.pop("crop_mode", None) not in (None, "center"):
            raise SystemExit("crop_mode: this example supports the center crop only")
    device, distributed = options.pop("device", "cpu"), options.pop("distributed", False)
    loader = warpfeed.Loader(
        str(reader.root),
        classes=sorted(reader.class_to_idx, key=reader.class_to_idx.get),
        batch_size=batch_size,
        augment=augment.interpolation(FILTERS[filter]),  # type: ignore[arg-type]
        normalize=(options.pop("mean"), options.pop("std")),
        dtype=options.pop("img_dtype", "f32"),
        device=device if str(device).startswith("cuda") else None,
        pin_memory=options.pop("pin_memory", False),
        num_workers=options.pop("num_workers", None) or None,
        distributed=distributed or None,
        shuffle=is_training,
        # timm's name for the option --seed.
        seed=options.pop("batch_choice_seed", 42),
        last_batch="drop" if is_training else "pad" if distributed else "keep",
    )
    unsupported = {name: value for name, value in options.items() if value and name not in IGNORED}
    if unsupported:
        raise SystemExit(f"warpfeed has no equivalent of {unsupported}; remove these options")
    return loader


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    timm.data.create_loader = create_loader
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
