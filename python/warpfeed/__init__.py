"""A data loader that keeps a GPU fed.

::

    import warpfeed

    loader = warpfeed.Loader(
        "imagenet/train", batch_size=256, shuffle=42, augment=warpfeed.Augment.train(224),
        device="cuda", dtype="bf16", normalize="imagenet", drop_last=True,
    )
    for epoch in range(90):
        for images, labels in loader:
            ...
"""

from . import collate as collate
from ._augment import Augment, ColorJitter, Mix, RandomErasing
from ._batch import Batch, FieldBatch
from ._buckets import Buckets
from ._decoder import Decoded, Decoder, Pending
from ._error import ConfigError, MissingError, StorageError, TimedOutError, WarpfeedError
from ._fields import Boxes, Geometry
from ._fields import Image as Image
from ._fields import Label, Map, Mask, MultiHot, Numbers, Points, Rows, Text, TokenIds
from ._geometry import boxes_to_source
from ._joined import Joined
from ._loader import Loader
from ._pack import merge, pack, pack_progress
from ._report import Report, Stats
from ._sources import Coco, Concat, TableOptions, Tokens, Voc, Yolo
from ._split import split
from ._warpfeed import Span as span
from ._warpfeed import Tensor, version

__version__ = version()

# Without `Image`: `from warpfeed import *` must not hide Pillow's.
__all__ = [
    "Augment",
    "Batch",
    "Boxes",
    "Buckets",
    "Coco",
    "ColorJitter",
    "Concat",
    "ConfigError",
    "Decoded",
    "Decoder",
    "FieldBatch",
    "Geometry",
    "Joined",
    "Label",
    "Loader",
    "Map",
    "Mask",
    "MissingError",
    "Mix",
    "MultiHot",
    "Numbers",
    "Pending",
    "Points",
    "RandomErasing",
    "Report",
    "Rows",
    "Stats",
    "StorageError",
    "TableOptions",
    "Text",
    "Tensor",
    "TimedOutError",
    "TokenIds",
    "Tokens",
    "Voc",
    "WarpfeedError",
    "Yolo",
    "__version__",
    "boxes_to_source",
    "merge",
    "pack",
    "pack_progress",
    "span",
    "split",
]
