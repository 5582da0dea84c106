"""Cumulative lengths of packed documents and images."""

from __future__ import annotations

from typing import Any, Mapping

from ._error import ConfigError

__all__ = ["cu_seqlens"]


def cu_seqlens(batch: Mapping[str, Any], name: str = "tokens") -> tuple[Any, int]:
    """Returns the cumulative lengths (i32) and the maximum length of the documents in the
    :class:`PackedIds` field ``name``, or of the images in the :class:`Patches` field ``name``, as
    arguments for ``flash_attn_varlen_func``.

    With ``cu, longest = cu_seqlens(batch)`` and queries, keys and values of shape (N * length,
    heads, size), call ``flash_attn_varlen_func(q, k, v, cu, cu, longest, longest, causal=True)``.

    The cumulative lengths refer to the concatenated rows of the batch: 0, followed by the end of
    each document. The padding of a row counts as a document. The array always has N *
    (max_documents + 1) + 1 elements, so empty documents may follow the last document of a row. For
    a batch on a device, the device computes the array, and the function returns the length of a row
    instead of the maximum, so that the host does not wait for the device.

    For patches, the array has one more element than there are images, and there is no padding. For
    a batch on a device, the function returns the number of all patches instead of the maximum.

    Args:
        batch: a batch of torch tensors or NumPy arrays.
        name: name of the field.

    Raises:
        ConfigError: if the batch has no such field.
    """
    lengths = batch.get(f"{name}.cu_seqlens")
    if lengths is not None:
        on_device = getattr(lengths, "is_cuda", False)
        longest = batch[name].shape[0] if on_device else int(max(lengths[1:] - lengths[:-1], default=0))
        return lengths, longest
    ends = batch.get(f"{name}.ends")
    if ends is None:
        raise ConfigError(
            f"cu_seqlens: the batch has no PackedIds field {name!r}, and no Patches field of this name; add "
            f"fields={{{name!r}: PackedIds(...)}}"
        )
    rows, length = batch[name].shape[:2]
    if hasattr(ends, "new_zeros"):
        import torch

        starts = torch.arange(0, rows * length, length, dtype=torch.int32, device=ends.device)
        result = torch.cat([ends.new_zeros(1), (ends + starts[:, None]).flatten()])
        return result, length if result.is_cuda else int(result.diff().max())
    import numpy as np

    first = np.arange(0, rows * length, length, dtype=np.int32)
    boundaries = np.concatenate([np.zeros(1, np.int32), (np.asarray(ends) + first[:, None]).ravel()])
    return boundaries, int(np.diff(boundaries).max())
