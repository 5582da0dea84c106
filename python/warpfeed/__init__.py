"""A data loader that keeps a GPU fed.

::

    import warpfeed

    loader = warpfeed.Loader(
        "imagenet/train", batch_size=256, shuffle=True, seed=42, augment=warpfeed.Augment.train(224),
        device="cuda", dtype="bf16", normalize="imagenet", drop_last=True,
    )
    for epoch in range(90):
        for images, labels in loader:
            ...
"""

from typing import TYPE_CHECKING, Any

from . import _other_names
from . import collate as collate
from . import metrics as metrics
from ._augment import Augment, ColorJitter, Mix, RandomErasing
from ._batch import Batch, FieldBatch
from ._buckets import Buckets, SizeBuckets, image_sizes
from ._decode_image import decode_image
from ._decoder import Decoded, Decoder, Pending
from ._dynamic_batcher import DynamicBatcher
from ._error import ConfigError, LoaderTimeoutError, NotFoundError, StorageError, WarpfeedError
from ._fields import Boxes, DenseMap, Geometry
from ._fields import Image as Image
from ._fields import Keypoints, Label, Mask, MultiHot, NdArray, PackedIds, Patches, Ragged, Text, TokenIds
from ._geometry import boxes_to_source
from ._loader import Loader
from ._mixture import Mixture, MixtureChange
from ._pack import merge, pack, pack_progress
from ._packed import cu_seqlens
from ._report import Report, Stats
from ._sources import Clips, Coco, Concat, Episode, LeRobot, PackedTokens, TableOptions, Tokens, Voc, Yolo, Zip
from ._split import split
from ._warpfeed import Span as span
from ._warpfeed import Tensor, version

__version__ = version()

# `Image` is left out, because `from warpfeed import *` must not hide Pillow's `Image`.
__all__ = [
    "Augment",
    "Batch",
    "Boxes",
    "Buckets",
    "Clips",
    "Coco",
    "ColorJitter",
    "Concat",
    "ConfigError",
    "Decoded",
    "Decoder",
    "DenseMap",
    "DynamicBatcher",
    "Episode",
    "FieldBatch",
    "Geometry",
    "Keypoints",
    "Label",
    "LeRobot",
    "Loader",
    "LoaderTimeoutError",
    "Mask",
    "Mix",
    "Mixture",
    "MixtureChange",
    "MultiHot",
    "NdArray",
    "NotFoundError",
    "PackedIds",
    "Patches",
    "PackedTokens",
    "Pending",
    "Ragged",
    "RandomErasing",
    "Report",
    "SizeBuckets",
    "Stats",
    "StorageError",
    "TableOptions",
    "Tensor",
    "Text",
    "TokenIds",
    "Tokens",
    "Voc",
    "WarpfeedError",
    "Yolo",
    "Zip",
    "__version__",
    "boxes_to_source",
    "cu_seqlens",
    "decode_image",
    "image_sizes",
    "merge",
    "pack",
    "pack_progress",
    "span",
    "split",
]


# Hidden from type checkers, which would otherwise accept every name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        message = _other_names.missing("warpfeed", "attribute", name)
        if message is not None and name[0].isupper():
            # `from warpfeed import name` would replace the message of an AttributeError.
            raise ImportError(message)
        raise AttributeError(f"module 'warpfeed' has no attribute {name!r}")
