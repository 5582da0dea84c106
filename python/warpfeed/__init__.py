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

from ._augment import Augment, ColorJitter, Mix, RandomErasing
from ._batch import Batch, FieldBatch
from ._error import WarpfeedError
from ._fields import Image, Label, Numbers, Rows
from ._loader import Loader, Report
from ._split import split
from ._warpfeed import Tensor, version

__version__ = version()

__all__ = [
    "Augment",
    "Batch",
    "ColorJitter",
    "FieldBatch",
    "Image",
    "Label",
    "Loader",
    "Mix",
    "Numbers",
    "RandomErasing",
    "Report",
    "Rows",
    "Tensor",
    "WarpfeedError",
    "__version__",
    "split",
]
