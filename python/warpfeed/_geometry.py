"""Maps boxes in output images back to the source images."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["boxes_to_source"]


def boxes_to_source(boxes: Any, matrix: Any, size: Any = None) -> Any:
    """Maps boxes in the output images, such as predictions, back to the source images.

    ::

        loader = Loader("val", augment=Augment.letterbox(640), fields={"geo": Geometry()})
        for batch in loader:
            boxes = model(batch["image"])  # (N, M, 4): edges in pixels of the output images
            boxes = warpfeed.boxes_to_source(boxes, batch["geo"], batch["geo.size"])

    Args:
        boxes: left, top, right and bottom edges in pixels of the output images, as a NumPy array
            or a torch tensor of shape (N, M, 4) for a batch, or (M, 4) for one sample.
        matrix: the batch field of type :class:`Geometry`, of shape (N, 2, 3), or (2, 3) for one
            sample.
        size: the ``<name>.size`` batch field, of shape (N, 2), or (2,) for one sample. If given,
            boxes are clipped to their source images. Otherwise a box may extend beyond its source
            image.

    Returns:
        The boxes in pixels of the source images after their EXIF rotation, with the shape and the
        device of ``boxes``. If an image was flipped, edges are swapped so that left is less than
        right, and top is less than bottom.

    Raises:
        ValueError: if the shapes of ``boxes`` and ``matrix`` do not match.
    """
    is_torch = type(boxes).__module__.partition(".")[0] == "torch"
    xp: Any = import_module("torch" if is_torch else "numpy")
    if not is_torch:
        boxes, matrix = xp.asarray(boxes), xp.asarray(matrix)
        if boxes.dtype.kind != "f":
            boxes = boxes.astype("f4")
    batched = len(matrix.shape) == 3
    if tuple(matrix.shape[-2:]) != (2, 3) or tuple(boxes.shape[-1:]) != (4,) or len(boxes.shape) != 2 + batched:
        raise ValueError(
            f"boxes has the shape {tuple(boxes.shape)} and matrix {tuple(matrix.shape)}: expected (N, M, 4) and "
            "(N, 2, 3), or (M, 4) and (2, 3)"
        )
    if batched and boxes.shape[0] != matrix.shape[0]:
        raise ValueError(
            f"boxes has {boxes.shape[0]} samples, but matrix has {matrix.shape[0]}: expected the same number"
        )
    edges = []
    for axis in (0, 1):
        scale, shift = matrix[..., axis, axis, None], matrix[..., axis, 2, None]
        first, second = (boxes[..., axis] - shift) / scale, (boxes[..., axis + 2] - shift) / scale
        pair = [xp.minimum(first, second), xp.maximum(first, second)]
        if size is not None:
            # The size is (height, width), but axis 0 is x.
            limit = (size if is_torch else xp.asarray(size))[..., 1 - axis, None]
            pair = [xp.minimum(xp.maximum(edge, 0 * edge), limit + 0 * edge) for edge in pair]
        edges.append(pair)
    return xp.stack([edges[0][0], edges[1][0], edges[0][1], edges[1][1]], -1)
