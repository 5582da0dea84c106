"""Advice for names that this package does not have.

The table contains earlier names, and names that users of PyTorch or of the Rust crate may try.
Errors for unknown arguments and attributes include its advice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["INSTEAD", "PER_IMAGE", "EarlierNames", "missing"]

PER_IMAGE = (
    "use image_transform=f for a Python function on each image, which worker processes call, or batch_transform=[f] "
    "for functions on whole batches, such as torchvision.transforms.v2 on the device"
)

_RANDOM = "the random numbers of a sample depend only on (seed, epoch, sample): set seed"

INSTEAD = {
    # Earlier names of classes.
    "Joined": "use DynamicBatcher",
    "Map": "use DenseMap",
    "MissingError": "use NotFoundError",
    "Numbers": "use NdArray",
    "Points": "use Keypoints",
    "Rows": "use Ragged",
    "Shares": "use MixtureChange",
    "TimedOutError": "use LoaderTimeoutError",
    # Earlier names of options and methods.
    "border": "use padding_mode",
    "by_class": "use stratify",
    "by_class_name": "use match_labels_by_name",
    "end": "use eos_token_id",
    "faults": "use sample_errors()",
    "from_": "use in_format",
    "from_zero": "use zero_based",
    "index": "use cache_listing",
    "jitter": "use start_jitter of Clips",
    "joined": "use dynamic_batcher(f, max_delay_ms=...)",
    "keep_bad": "use keep_undecodable",
    "keys_of_samples": "use sample_keys",
    "kinds": "use field_types",
    "names": "use prefixes",
    "number": "use batch_index",
    "of": "use source_field",
    "once": "use single_pass",
    "order": "use sampler=f, where f(epoch) returns the indices of an epoch",
    "output": "use with_output_size",
    "own_size": "use pad_to",
    "pad": "use pad_short_videos of Clips, or Augment.pad_to",
    "padding": "use pad_token_id",
    "per_set_batches": "use single_dataset_batches",
    "per_video": "use clips_per_video",
    "picture": "use image",
    "pictures": "use images for the folder of Coco, and batch.unpadded_images for images without their padding",
    "prefetch": "use max_in_flight",
    "processes": "use image_transform_processes",
    "quick": "use skip_checksums",
    "random_colour": "use random_color",
    "relative": "use in_relative",
    "round": "use draws_per_round",
    "row": "use row_shape",
    "shares": "use proportions",
    "sizes": "use image_sizes",
    "to": "use out_format",
    "to_relative": "use out_relative",
    "to_8_bits": "use convert_to_u8",
    "transform": PER_IMAGE,
    "transform_cost": "use image_transform_cost()",
    "transform_moves_pixels": "use image_transform_moves_pixels",
    "transforms": "use batch_transform, a function or a list of functions on whole batches",
    "truncated": "use truncate",
    "unlabelled": "use unlabeled",
    "unpadded": "use unpadded_images",
    "vocabulary": "use vocab_size",
    "without": "use drop_field",
    # Arguments of torch.utils.data.DataLoader and of torchvision's datasets.
    "batch_sampler": "set batch_size, and choose samples with shuffle, subset, weights, balanced or sampler",
    "collate_fn": "use collate=f, where f receives the finished batch as a dict of fields; to add fields, use "
    "fields={name: NdArray(...) or Ragged(...)}",
    "dataset": "pass the dataset as the first argument",
    "generator": _RANDOM,
    "in_order": "batches are always delivered in order",
    "multiprocessing_context": "the workers are threads of this process",
    "persistent_workers": "the workers live as long as the loader",
    "pin_memory_device": "set device, the device to which batches are delivered",
    "prefetch_factor": "set prefetch, the number of batches to prepare; leave it out to let the loader choose",
    "timeout": "slow workers are logged; held_batches_timeout limits the wait while your program holds every batch",
    "target_transform": "map the labels of a whole batch with batch_transform=[f]",
    "worker_init_fn": _RANDOM,
    # Options of the Rust crate.
    "codec": "a Python decoder would run under the interpreter's lock: convert the files, or write the codec in Rust",
    "format": "the format is detected; to name it, pass Coco(path), Yolo(path), Voc(path), Clips(path) or LeRobot(path) as "
    "the dataset, or pack the dataset first, with warpfeed.pack(path, target, format=...)",
    "on_error": "set max_skipped, the number of bad samples that may be skipped; by default, the first bad sample "
    "raises an error",
    "pinned": "use pin_memory",
    "workers": "use num_workers",
}


def missing(owner: str, kind: str, name: str) -> str | None:
    """Returns the error message for a name that `owner` does not have, or None if the table has no
    advice. `kind` is "argument" or "attribute"."""
    return f"{owner} has no {kind} {name!r}: {INSTEAD[name]}" if name in INSTEAD else None


class EarlierNames:
    """Base class of objects that give advice for a missing attribute."""

    __slots__ = ()

    # Hidden from type checkers, which would otherwise accept every attribute.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            message = missing(type(self).__name__, "attribute", name)
            if message is not None:
                raise AttributeError(message)
            # Repeat the failed lookup. If a property raised the AttributeError, this raises the
            # property's error again instead of a generic one.
            return object.__getattribute__(self, name)
