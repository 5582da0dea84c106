"""The loader."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
import reprlib
import sys
import threading
import traceback
from copy import copy as copy_of
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Literal, Mapping, NoReturn, Sequence

from . import _delivery, _options, _other_names, _ranks, _warpfeed
from ._augment import Augment
from ._batch import Batch, Collated, FieldBatch, properties_of
from ._batch_transform import BatchTransform, Collate, Fields
from ._buckets import Buckets, SizeBuckets
from ._closing import close_at_exit
from ._error import ConfigError, WarpfeedError
from ._fields import DenseMap, Image, NdArray, PackedIds, Text, TokenIds, check_images, reject_moved_fields
from ._image_transform import ImageTransform
from ._mixture import Mixture, proportions_of
from ._number_lists import Floats, SampleSelection
from ._report import Report, Stats
from ._samples import mixture
from ._sources import Clips, LeRobot, PackedTokens, TableOptions, Tokens, names_url
from ._trainers import BatchSampler, Dataset, Sampler, Skipped, decoded
from ._types import Device, Dtype, Normalize, Trace

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Loader"]

_log = logging.getLogger("warpfeed")
_warpfeed.start_log()

#: Abbreviates long lists in the options of `stats()`.
_short_repr = reprlib.Repr()
_short_repr.maxstring = _short_repr.maxother = 1000
_short_repr.maxdict = 100

#: A function of the ``batch_transform`` option.
Transform = Callable[..., Any]


def _array_text(value: Any) -> str | None:
    """Returns the type and shape of an array or a tensor, whose `repr` has many lines, and None for
    any other value."""
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple) or not shape or not hasattr(value, "dtype"):
        return None
    return f"<{type(value).__name__} of shape {tuple(shape)}>"


def _log_messages() -> None:
    for level, text in _warpfeed.drain_log():
        try:
            _log.log(level, "%s", text)
        except Exception:
            # As `logging` does. Raising the exception would lose the batch that has just arrived.
            if logging.raiseExceptions and sys.stderr is not None:
                traceback.print_exc()


class Loader(_other_names.EarlierNames):
    """Loads batches: ``for images, labels in loader``.

    The constructor starts the threads and allocates the memory for all batches. Each ``for`` loop
    runs the next epoch, or the epoch that :meth:`set_epoch` selects.

    All arguments except ``data`` are keyword-only.

    Args: Data
        data: the dataset.

            - The path or URL of a dataset: a folder of class folders, a flat folder, an LMDB, tar
              shards or a pattern such as ``train-{000..099}.tar``, Parquet or Arrow files (Hugging
              Face), MDS shards, LitData chunks, FFCV's ``.beton``, RecordIO, TFRecord, arrays
              (NumPy, safetensors, PyTorch, HDF5), a table (CSV, TSV, JSON lines), a COCO, YOLO or
              Pascal VOC dataset, robot episodes (LeRobot), or a folder of videos.
            - A :class:`Coco`, :class:`Yolo`, :class:`Voc`, :class:`Clips`, :class:`Tokens`,
              :class:`PackedTokens`, :class:`LeRobot`, :class:`Concat` or :class:`Zip`.
            - An object with ``__len__`` and ``__getitem__`` that returns an image, ``(image,
              label)`` or a ``dict`` of fields. An image is ``bytes``, a path, an array or a tensor
              of pixels, or a Pillow image. Files, bytes and Pillow images are rotated according to
              their EXIF orientation. The field of an ``Image(frames=T)`` is a list of T images,
              and the field of a ``Patches(images=n)`` is a list of up to n images.
            - A list ``[(data, proportion), ...]``: a mixture, which draws samples from the datasets
              in these proportions. A :class:`Mixture` has more options.
        table: how to read a table, including what each column contains. Datasets without columns
            reject this option.
        masks: folder that contains the masks for a folder of images, relative to the parent of the
            image folder: for ``"CamVid/train"``, ``masks="trainannot"`` is ``CamVid/trainannot``.
            The mask of ``a/1.jpg`` is ``a/1.png`` in this folder, or the same path with ``.npy``,
            ``.tif``, ``.tiff``, ``.gif``, ``.bmp`` or ``.webp``. The masks become the ``mask``
            field, for :class:`Mask`. A ``*`` in the last component of ``masks`` stands for the name
            of the image, as in ``"masks/*_mask"``. A sample without a mask fails. Datasets other
            than folders of images reject this option.
        classes: class names. The label of a class is the position of its name in this list. In a
            dataset without class names, labels are already positions in this list.
        classes_file: file with the class names: one per line, or a JSON list.
        match_labels_by_name: assigns the same label to classes that have the same name in several
            datasets of a mixture.
        keep_labels: keeps the labels of a mixture unchanged, even if its datasets have different
            class names.

    Args: Batches
        batch_size: number of samples in a batch of this rank. None, the default, means 32. Unlike in
            PyTorch, None does not disable batching.
        drop_last: ``drop_last=True`` is the same as ``last_batch="drop"``, as in PyTorch.
        last_batch: whether an incomplete last batch is delivered (``"keep"``, the default), left
            out (``"drop"``) or filled with padding (``"pad"``).
        num_workers: number of worker threads. None, the default, starts one thread per core.
            If a GPU decodes JPEGs, one of 16 cores is left to other threads; if a GPU decodes
            videos, there are more threads. Ranks on the same machine divide its cores. There are no
            worker processes, so 0 is rejected.
        prefetch: number of batches to prepare in advance. With None, the default, the loader
            adjusts the number while it runs.
        batch_transform: a function that is called on whole batches, or a list of functions that are
            called one after another: ``f(images, labels)``, or ``f(fields)`` if the batch is a
            dict. Each function must return a pair ``(images, labels)`` or a dict. A function may
            have the keyword-only parameters ``epoch``, ``batch_index`` (within its epoch) and
            ``seed``, as in ``def f(images, labels, *, seed)``. ``seed`` differs for each function,
            batch and rank, and does not change when a run is resumed. If a function raises an
            exception, the loader raises a :class:`WarpfeedError` that names the batch and has the
            exception as its cause.
        collate: a function ``f(batch)``. The loader yields its result instead of the batch.
            ``collate`` is called after ``batch_transform``. ``batch`` is a dict of all fields,
            including ``image`` and ``label``, and has ``epoch``, ``batch_index``, ``ids``,
            ``valid`` and the other properties of a batch. Exceptions are reported as for
            ``batch_transform``. :mod:`warpfeed.collate` provides ready-made functions.

    Args: Order
        shuffle: whether each epoch uses a new random order; False by default.
        seed: seed of the shuffle, of weighted draws and of all augmentation; 0 by default.
        shuffle_window: shuffles blocks of consecutive samples, and then the samples within windows
            of about this many samples, even without ``shuffle``.
        sampler: a function ``f(epoch)`` that returns the sample indices of an epoch in order, with
            the same meaning as in ``batch.ids``. An index outside ``subset`` raises an error. A
            repeated index delivers its sample again, with a different augmentation. The function is
            called when its epoch begins, so it may depend on state such as a curriculum or losses.
            The constructor calls ``f(0)``, and ``len`` and ``state_dict`` may also call the
            function. With ``epochs`` greater than 0, the function is called during the previous
            epoch, and must return the same indices whenever it is called for the same epoch. If it
            raises an exception, the loader raises a :class:`WarpfeedError` that names the epoch and
            has the exception as its cause.
        subset: indices of the samples to deliver. ``loader.dataset`` then contains only these
            samples. A repeated index delivers its sample again, with a different augmentation. For
            large subsets, pass an array. Indices keep their meaning: ``batch.ids``, ``sampler``,
            ``weights``, ``buckets`` and ``loader.dataset[id]`` still refer to the whole dataset.
        weights: weight of each sample of the whole dataset. Samples are drawn with replacement; if
            ``subset`` is set, only from the subset. For large datasets, pass an array.
        balanced: draws samples with replacement so that all classes are equally likely. Each
            selected sample must have a label.
        buckets: lengths of the samples, to group samples of similar lengths into batches
            (:class:`Buckets`), or sizes of the images, to group them by aspect ratio
            (:class:`SizeBuckets`).
        repeat: number of passes over the samples in an epoch.
        epochs: number of epochs that will be used. Toward the end of each of these epochs except
            the last, the loader already prepares the first batches of the next epoch. More epochs
            can still be requested. With 0, the loader prepares nothing before an epoch is
            requested. The default is 0 with ``sampler``, and unlimited otherwise.
        resume: a result of :meth:`state_dict`. The loader continues from this position.

    Args: Images
        augment: augmentation of each image; ``Augment.eval(256, 224)`` by default.
        views: a list of augmentations. Each augmentation creates a view of each image. The views
            are delivered instead of the image: the batch is then a dict, and its ``views`` entry is
            a list with one array per augmentation. Each view has its own random numbers.
            :meth:`Augment.simclr_views` and :meth:`Augment.dino_views` return such lists.
        dtype: element type of the images: ``"u8"``, ``"f16"``, ``"bf16"``, ``"f32"``, or the
            corresponding torch or NumPy type. The default is ``"f32"`` with ``normalize``, and
            ``"u8"`` without it.
        normalize: ``"imagenet"`` or ``(mean, std)`` on a scale of 0 to 1. Values on a scale of 0 to
            255 are rejected. Without ``normalize``, floats are ``pixel / 255``.
        layout: ``"channels_last"``, the default for torch, delivers (N, 3, H, W) with NHWC memory;
            ``"nhwc"``, the default otherwise, delivers (N, H, W, 3); ``"nchw"`` delivers contiguous
            (N, 3, H, W).
        channels: pass 1 for grayscale images, which contain the luminance of the augmented image,
            in one channel. Supported only in host memory. For 16-bit or float images, and for
            other numbers of channels, use :class:`DenseMap`.
        background: color behind transparent pixels, such as ``(255, 255, 255)``. By default, alpha
            is ignored.
        convert_to_u8: converts 16-bit images by taking their upper byte, and float images by
            scaling the range 0 to 1 to 0 to 255. Without this option, samples with such images
            fail.
        image_transform: a function ``f(image, rng)``, or an albumentations pipeline. The function
            is called on each image after ``augment``, except that random erasing and mixing follow
            it. ``image`` is a uint8 NumPy array of shape (H, W, 3), and ``rng`` is a
            ``numpy.random.Generator`` that depends only on the seed, the epoch, the sample and, if
            an epoch repeats the sample, its occurrence. The function must return a uint8 array of
            the same shape. ``image`` excludes the area that the crop fills,
            such as the padding of ``pad_to`` and ``letterbox``, unless the augmentation contains
            a geometric operation such as a rotation, a mosaic, or a border of ``random_crop``. The
            function runs in worker processes with the start method "spawn", so it must be
            picklable. Pixels are passed in shared memory.
        image_transform_processes: number of processes for ``image_transform``; by default one per
            core, but at most ``num_workers``. With 0, the worker threads call the function and hold
            the GIL during the call. 0 is the default for free-threaded Python.
        image_transform_moves_pixels: pass False to declare that ``image_transform`` does not move
            pixels, for example because it only changes colors. Loaders with masks, boxes or other
            fields that are transformed with the image require this, because ``image_transform``
            does not change these fields.

    Args: Fields
        fields: additional fields by name: ``{"emb": NdArray("f32", [768]), "boxes": Boxes(100)}``.
        drop_field: fields to leave out: ``"label"`` or ``["image", "label"]``.
        soft_labels: ``(classes, smoothing)`` adds the ``soft_label`` field, f32 of shape (N,
            classes), and makes the batch a dict. ``classes`` is the number of classes. If the
            dataset has class names, as a folder of class folders does, you can pass only the
            smoothing, such as ``0.1``. Mixing (:class:`Mix`) requires this option, or
            ``drop_field=["label"]``.
        unlabeled: delivers missing labels as -1. Without this option, missing labels are an error.
            The exception is a batch with additional fields: if none of its samples has a label,
            the batch has no ``label``.
        annotations_follow: for images that EXIF rotates, the version of the image that boxes, masks
            and points refer to: ``"stored"``, the pixels in the file, or ``"upright"``. The loader
            uses this option only if the size of the annotated image does not show the version. By
            default, such a sample fails.

    Args: Device
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, a device index or a ``torch.device``. A device
            batch is ready for use on torch's current stream.
        output: ``"torch"``, ``"numpy"`` or ``"dlpack"``. The default is torch if it is installed,
            and NumPy otherwise.
        copy: True copies every field, and False copies none. By default, fields of at most 64 KiB
            per batch are copied. If your program still uses all batch buffers except one, the whole
            batch is copied.
        pin_memory: page-locks the host memory of batches. If this is impossible, the loader logs a
            warning, and uses pageable memory.
        decode_on: where the JPEGs of device batches are decoded: ``"cpu"`` (the default), ``"gpu"``
            or ``"auto"``. The pixels are the same in all cases. ``"auto"`` uses the device only for
            images that the workers have no time to decode. The device decodes packed files faster
            than others. The workers decode host batches, so ``"gpu"`` requires ``device``.
        decode_share: maximum fraction of the device's time that decoding may take, from 0 to 1; 1
            by default.

    Args: Several GPUs
        distributed: True reads the rank from ``torch.distributed``, from Ray Train, or from the
            launcher's environment, whichever is found first. False delivers all samples to every
            rank. If there are several ranks, pass ``distributed`` or ``rank``. When an epoch
            begins, the loader compares its rank with ``torch.distributed``, which may have been
            initialized later, unless you passed False or ``rank``.
        rank: rank of this process; requires ``world_size``.
        world_size: number of ranks.
        global_batch_size: number of samples per batch, summed over all ranks; replaces
            ``batch_size``.

    Args: Storage
        mmap: maps files, such as tar shards, into memory instead of reading them; True by default.
            LMDB files are always mapped, so opening an LMDB with False fails.
        cache_listing: caches the listing of a local folder of images in the file
            ``<folder>.warpfeed-index`` next to the folder. Other datasets reject this option.
        cache_bytes: maximum size in bytes of the local cache for data from URLs. By default,
            nothing is cached. Local datasets reject this option, unless ``table`` is set.
        cache_dir: folder of the cache; by default ``$WARPFEED_CACHE/blocks``, or else
            ``$XDG_CACHE_HOME/warpfeed/blocks``, or else ``~/.cache/warpfeed/blocks``. The loader
            creates the folder, which must not contain other files. All processes of a user on a
            machine may share it. Requires ``cache_bytes``.
        cache_refresh: lists object stores again instead of using cached listings, which do not
            contain objects that were added later. Requires ``cache_bytes``.

        cache_decoded: maximum size in bytes of a cache of decoded images in memory. In later
            epochs, images in the cache are cropped instead of decoded again. Batches do not change.
            An image takes 3 bytes per pixel, about 0.5 MB for a photograph of ImageNet. By default,
            nothing is cached.
        cache_format: ``"pixels"`` (the default), or ``"coefficients"`` to cache the DCT
            coefficients of JPEGs, which usually take less than half as much memory. Pixels are then
            computed in each epoch, but Huffman decoding is skipped. Other images, and JPEGs whose
            coefficients take more memory than their pixels, are cached as pixels. Requires
            ``cache_decoded``.

    Args: Errors and limits
        max_skipped: number of bad samples that may be skipped. A copy of a different sample of the
            batch replaces each of them. By default, the first bad sample raises an error.
        strict: makes a sample fail if damage is detected anywhere in its image, even if the image
            can be decoded. This requires decoding each JPEG to its end, which takes time. By
            default, JPEGs with damage that libjpeg tolerates are decoded. If the decoded data
            violates the format, ``stats()["damaged_images"]`` counts the image each time that it is
            delivered, and the log names the first 100. A JPEG has no checksum, so even
            ``strict`` does not detect all damage. Instead of ``strict``, you can run ``warpfeed
            verify`` once, which performs the same check.
        retries: number of times that a read is repeated after a transient error; 3 by default.
        held_batches_timeout: number of seconds that ``next`` waits while all batches are in use,
            before it raises a :class:`LoaderTimeoutError`; 30 by default.
        memory_limit: maximum size of the memory plan, in bytes.
        max_pixels: maximum number of pixels of an image; 2**28 by default. A larger image fails.
        max_sample_bytes: maximum total size in bytes of the stored fields of a sample; 2**31 by
            default. A larger sample fails.
        trace: path for a trace of Chrome trace events, which Perfetto displays, or ``(path, (wait,
            warmup, active, repeat))``. In each cycle of ``wait + warmup + active`` batches, the
            last ``active`` batches are traced. There are ``repeat`` cycles, or any number if
            ``repeat`` is 0. The default is (1, 1, 3, 1). The file is complete after each cycle, and
            when the loader is closed.

    Raises:
        ConfigError: if an option has an unsupported value, or contradicts other options or the
            dataset. This error is also a ``ValueError``.
        WarpfeedError: if the dataset cannot be opened. If a path does not exist, the error is also
            a ``FileNotFoundError``.
        TypeError: for an unknown argument or a value of the wrong type.
    """

    def __init__(
        self,
        data: Any,
        *,
        # Data
        table: TableOptions | None = None,
        masks: _options.Path | None = None,
        classes: Sequence[str] | None = None,
        classes_file: _options.Path | None = None,
        match_labels_by_name: bool = False,
        keep_labels: bool = False,
        # Batches
        batch_size: int | None = None,
        drop_last: bool | None = None,
        last_batch: Literal["keep", "drop", "pad"] | None = None,
        num_workers: int | None = None,
        prefetch: int | None = None,
        batch_transform: Transform | Sequence[Transform] = (),
        collate: Callable[[Any], Any] | None = None,
        # Order
        shuffle: bool = False,
        seed: int | None = None,
        shuffle_window: int | None = None,
        sampler: Callable[[int], Iterable[int]] | None = None,
        subset: Iterable[int] | None = None,
        weights: Iterable[float] | None = None,
        balanced: bool = False,
        buckets: Buckets | SizeBuckets | None = None,
        repeat: int | None = None,
        epochs: int | None = None,
        resume: Mapping[str, Any] | None = None,
        # Images
        augment: Augment | None = None,
        views: Sequence[Augment] | None = None,
        dtype: Dtype | None = None,
        normalize: Normalize | None = None,
        layout: Any = None,
        channels: int | None = None,
        background: tuple[int, int, int] | None = None,
        convert_to_u8: bool = False,
        image_transform: Callable[..., Any] | None = None,
        image_transform_processes: int | None = None,
        image_transform_moves_pixels: bool | None = None,
        # Fields
        fields: Mapping[str, Any] | None = None,
        drop_field: str | Sequence[str] = (),
        soft_labels: tuple[int, float] | float | None = None,
        unlabeled: bool = False,
        annotations_follow: Literal["stored", "upright"] | None = None,
        # Device
        device: Device | None = None,
        output: Literal["torch", "numpy", "dlpack"] | None = None,
        copy: bool | None = None,
        pin_memory: bool = False,
        decode_on: Literal["cpu", "gpu", "auto"] = "cpu",
        decode_share: float = 1.0,
        # Several GPUs
        distributed: bool | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        global_batch_size: int | None = None,
        # Storage
        mmap: bool = True,
        cache_listing: bool = False,
        cache_bytes: int | None = None,
        cache_dir: _options.Path | None = None,
        cache_refresh: bool = False,
        cache_decoded: int | None = None,
        cache_format: Literal["pixels", "coefficients"] = "pixels",
        # Errors and limits
        max_skipped: int | None = None,
        strict: bool = False,
        retries: int | None = None,
        held_batches_timeout: float | None = None,
        memory_limit: int | None = None,
        max_pixels: int | None = None,
        max_sample_bytes: int | None = None,
        trace: Trace | None = None,
        **unknown: NoReturn,
    ) -> None:
        if augment is not None and not isinstance(augment, Augment):
            raise TypeError(f"augment={augment!r}: expected warpfeed.Augment; {_other_names.PER_IMAGE}")
        if sampler is not None and not callable(sampler):
            raise TypeError(
                f"sampler={sampler!r}: expected a function f(epoch) that returns the indices of an epoch; instead of "
                "a torch sampler, use shuffle, weights or distributed, or sampler=lambda epoch: list(s)"
            )
        is_list = isinstance(views, (list, tuple)) and len(views) > 0
        if views is not None and not (is_list and all(isinstance(view, Augment) for view in views)):
            raise TypeError(f"views={views!r}: expected a list of warpfeed.Augment")
        if views is not None and "views" in (fields or {}):
            raise ConfigError(
                "fields: a field called 'views' would replace the views in the batch; choose another name"
            )
        if views is not None and augment is not None and not any(isinstance(k, Image) for k in (fields or {}).values()):
            raise ConfigError(
                "augment and views: views replace the image; leave augment out, or add fields={'image': Image()}"
            )
        _options.reject_bytes("data", data)
        if isinstance(data, PackedTokens):
            fields = {"tokens": PackedIds(data.length, data.max_documents)} if fields is None else fields
        elif isinstance(data, Tokens):
            fields = {"tokens": TokenIds(data.length)} if fields is None else fields
        elif isinstance(data, Clips) and fields is None:
            fields = {"video": Image("video", frames=data.frames), "video_is_pad": NdArray("u8", [data.frames])}
        if isinstance(data, (Tokens, PackedTokens, LeRobot)):
            # These datasets have neither labels nor a main image.
            fields = {} if fields is None else fields
            names = [drop_field] if isinstance(drop_field, str) else drop_field
            drop_field = [*names, *(name for name in ("image", "label") if name not in names and name not in fields)]
        values = _options.checked(Loader.__init__, locals(), unknown)
        defaults = Loader.__init__.__kwdefaults__ or {}
        _options.exclusive(
            values, ("batch_size", "global_batch_size"), ("classes", "classes_file"), ("drop_last", "last_batch")
        )
        if isinstance(data, (list, tuple)):
            data = mixture(data)
        is_mixture = isinstance(data, Mixture)
        native_data = data.parts if is_mixture else data
        if (cache_bytes is not None or cache_refresh) and table is None and not names_url(native_data):
            option = "cache_refresh" if cache_bytes is None else "cache_bytes"
            raise ConfigError(
                f"{option} has no effect: only data from URLs is cached, and this dataset is local; leave {option} out"
            )
        for option, draws_randomly in (("weights", weights is not None), ("balanced", balanced)):
            if shuffle and draws_randomly:
                raise ConfigError(
                    f"shuffle=True and {option}: {option} already draws samples at random; leave shuffle out, and keep "
                    "seed"
                )
        # A subclass set all attributes that exist at this point.
        subclass_attributes = set(vars(self))
        changes = {name: value for name, value in values.items() if value is not defaults[name] and name != "resume"}
        self._arguments = {"data": data, **changes}

        self._delivery = delivery = _delivery.Delivery(output, device, layout, copy)
        self._seed = seed or 0
        options = {
            "data": native_data,
            **({"mixture_options": data._options(), "augment_for": data.augments} if is_mixture else {}),
            **_options.to_native(values, leave_out=_PYTHON_OPTIONS),
            **_ranks.options(rank, world_size, distributed),
            "shuffle" if shuffle else "seed": self._seed,
            "last_batch": last_batch or ("drop" if drop_last else "keep"),
            "layout": delivery.layout,
        }
        check_images(values, defaults, fields or {}, options["drop_field"], views)
        # Store copies, because the caller may change its lists, but a pickled loader must have
        # the same order.
        self._arguments.update((name, options[name].values) for name in ("subset", "weights") if name in options)
        maps = {name: kind for name, kind in (fields or {}).items() if isinstance(kind, DenseMap)}
        if maps:
            maps_in_layout = {name: kind._with_layout(delivery.layout) for name, kind in maps.items()}
            options["fields"] = {**options["fields"], **maps_in_layout}
            # The extension module rejects an image layout if there are no images.
            has_images = views or any(isinstance(kind, Image) for kind in (fields or {}).values())
            if not has_images and ("image" in maps or "image" in options["drop_field"]):
                del options["layout"]
        has_own_sizes = is_mixture and data.global_batch_sizes
        #: Number of samples in a batch of this rank. None with ``global_batch_size`` or the
        #: mixture's ``global_batch_sizes``.
        self.batch_size = batch_size if batch_size or global_batch_size or has_own_sizes else 32
        #: Whether an incomplete last batch is dropped.
        self.drop_last = options["last_batch"] == "drop"
        self._last_batch: str = options["last_batch"]
        if resume is not None:
            self._check_last_batch(resume)
        #: Whether host memory is page-locked.
        self.pin_memory = bool(pin_memory)
        #: Index of the CUDA device; None for host memory.
        self.device = delivery.device
        #: Adapter for trainers that call ``loader.sampler.set_epoch``.
        self.sampler = Sampler(self)
        #: Lightning reads this attribute during validation. Iterating over it raises an error.
        self.batch_sampler = BatchSampler()
        self._batch_transform = BatchTransform(batch_transform)
        self._collate = None if collate is None else Collate(collate)
        self._field_types = dict(fields or {})
        self._views = [f"views.{n}" for n in range(len(views or ()))]
        image_fields = {name for name, kind in (fields or {}).items() if isinstance(kind, Image)}
        # Dense maps are included, because they use the layout of the images.
        self._image_fields = {"image", *self._views, *image_fields, *maps}
        # Whether the user requested labels explicitly, so missing labels are an error in batches
        # with additional fields.
        self._needs_label = unlabeled or soft_labels is not None or "label" in (fields or {})
        self._may_lack_images = not views and "image" not in options["drop_field"]
        self._was_compared_with_ranks = False
        # "fixed" by `rank` or `distributed=False`, or "detected" with `distributed=True`.
        self._rank_choice = "fixed" if rank is not None or distributed is False else "detected" if distributed else None
        if cache_format == "coefficients" and not cache_decoded:
            raise ConfigError(
                f"cache_format={cache_format!r} has no effect without cache_decoded=BYTES, the maximum size of the "
                "cache; set cache_decoded, or leave cache_format out"
            )
        if decode_on == "gpu" and delivery.device is None:
            raise ConfigError(
                "decode_on='gpu' has no effect on host batches; pass device='cuda' for batches on a GPU, or leave "
                "decode_on out"
            )
        if image_transform_processes is not None and image_transform is None:
            raise ConfigError(
                f"image_transform_processes={image_transform_processes} has no effect without image_transform=f; to set "
                "the number of worker threads, use num_workers"
            )
        if image_transform_moves_pixels is not None and image_transform is None:
            raise ConfigError(
                f"image_transform_moves_pixels={image_transform_moves_pixels} has no effect without image_transform=f; "
                "leave it out"
            )
        if image_transform is not None and image_transform_moves_pixels is not False:
            reject_moved_fields(fields or {}, image_transform_moves_pixels)
        self._image_transform = None
        if image_transform is not None:
            self._image_transform = ImageTransform(image_transform, image_transform_processes, num_workers)
            options["image_transform"] = self._image_transform.native
        try:
            self._core = _warpfeed.Core(options, delivery.native())
        except BaseException:
            if self._image_transform is not None:
                self._image_transform.end()
            raise
        finally:
            # If opening fails, the warnings may explain the error.
            _log_messages()
        close_at_exit(self)
        dropped_fields = set(options.get("drop_field", ()))
        is_pair = not views and not dropped_fields and set(fields or ()) <= {"image", "label"}
        needs_label = (is_pair or self._needs_label) and not unlabeled and "label" not in dropped_fields
        if needs_label and self._core.lacks_labels():
            self.close()
            advice = "pass unlabeled=True to read them as -1, or drop_field=['label'] to leave them out"
            if soft_labels is not None:
                advice = (
                    "leave soft_labels out, or pass unlabeled=True to read them as -1, which makes each row of "
                    "soft_label contain only the smoothing"
                )
            raise ConfigError(f"{data}: images in one folder have no labels; {advice}")
        subset = options["subset"].values if "subset" in options else None
        self._selection = SampleSelection(subset, self._core.source_len())
        self._own_attributes = frozenset(vars(self)) - subclass_attributes

    def __iter__(self) -> Iterator[Any]:
        """Returns an iterator over the next epoch.

        If a sample fails and may not be skipped, ``next`` raises the sample's error instead of
        returning the batch. If you catch the error and call ``next`` again, you get the following
        batch. Before the second call, :meth:`state_dict` returns the position of the failed batch.

        The epoch begins when its first batch is requested. Before that, :meth:`set_epoch` may still
        select a different epoch. Beginning an epoch ends the previous epoch. Toward the end of an
        epoch, the loader prepares the first batches of the next epoch, and discards them if a
        different epoch is requested.
        """
        return _Epoch(self)

    def epoch_from(self, epoch: int, first: int) -> Iterator[Any]:
        """Returns an iterator over ``epoch`` that starts at batch ``first``. Earlier batches are
        not loaded.

        The next ``iter`` continues with ``epoch`` + 1.
        """
        return _Epoch(self, (_options.integer("epoch", epoch), _options.integer("first", first)))

    def skip_first_batches(self, num_batches: int) -> Skipped:
        """Returns the next epoch without its first ``num_batches`` batches, like the function of
        the same name in accelerate. The skipped batches are not read.

        The epoch is the value of :attr:`epoch` when ``iter`` is called. When you resume a run, call
        :meth:`set_epoch` first, because each epoch has a different order.
        """
        return Skipped(self, _options.integer("num_batches", num_batches))

    def replay(self, n: int) -> Iterator[Any]:
        """Loads the first ``n`` batches of epoch 0, or all of its batches if it has fewer. Returns
        an iterator that repeats these batches endlessly.

        Use the iterator to measure the training step without the cost of loading. The step must not
        write to these batches, and the statistics do not include the repetitions. Calling this
        method ends the current epoch.

        Raises:
            ConfigError: if epoch 0 has no batches, or if ``n`` is 0 or more than ``prefetch`` + 1.
                If ``prefetch`` is automatic, the maximum is 3, or 2 if there is too little memory.
            WarpfeedError: if a sample of these batches fails.
        """
        self._check_world()
        batches = self._core.replay(_options.integer("n", n))
        _log_messages()
        return map(self._deliver, itertools.cycle(batches))

    def _begin(self, start: tuple[int, int] | None) -> tuple[int, int]:
        """Begins the next epoch, or begins at `start` (epoch, batch). Returns the generation for
        `Core.next`, and the number of batches that remain."""
        self._check_world()
        if self._rank_choice == "detected" and self.world_size > 1 and not self._was_compared_with_ranks:
            self._was_compared_with_ranks = True
            self._check_same_run(self.epoch if start is None else start[0])
        return self._core.begin(start)

    def _check_same_run(self, epoch: int) -> None:
        """Compares the samples, the batches and the position with the rank that began first. Raises
        an error if they differ."""
        data, state = self._arguments["data"], self.state_dict()
        name = os.path.basename(os.fspath(data)) if isinstance(data, (str, os.PathLike)) else type(data).__name__
        keys = ("seed", "global_batch", "last_batch", "samples", "epoch_samples", "order", "probes", "batch")
        run = {**{key: state[key] for key in keys}, "num_batches": self._core.num_batches(epoch), "epoch": epoch}
        _ranks.check_same(name, self.rank, self.world_size, run)

    def _check_world(self) -> None:
        """Raises an error if ``torch.distributed`` has a different rank now."""
        if self._rank_choice != "fixed":
            _ranks.check_world(self.rank, self.world_size, None if self._rank_choice is None else True)

    def __len__(self) -> int:
        """Returns the number of batches in the next epoch on this rank."""
        return int(self._core.num_batches(self.epoch))

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next ``iter``.

        After :meth:`load_state_dict`, the saved epoch begins at the saved batch, and earlier epochs
        are empty.
        """
        self._core.set_epoch(_options.integer("epoch", epoch))

    @property
    def epoch(self) -> int:
        """The epoch of the next ``iter``."""
        return int(self._core.epoch())

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the run: directly after the last delivered batch.

        The dict contains only types that JSON supports, so ``torch.load(weights_only=True)`` can
        load the dict. Ranks that have received the same number of batches have the same state.
        """
        state: dict[str, Any] = json.loads(self._core.checkpoint())
        return {**state, "last_batch": self._last_batch}

    def _check_last_batch(self, state: Mapping[str, Any]) -> None:
        """Raises an error if ``state`` is from a loader with a different ``last_batch``. A state of
        a Rust program does not contain this option."""
        saved = state.get("last_batch", self._last_batch)
        if saved != self._last_batch:
            raise ConfigError(
                f"resume: last_batch differs: the state has {saved!r}, this loader has {self._last_batch!r}, so the "
                'number of batches per epoch may differ; to accept the change, remove "last_batch" from the state'
            )

    def set_mixture(self, proportions: Iterable[float], *, after_batches: int = 0) -> tuple[int, int]:
        """Changes the proportions of a mixture during the run, for example based on the losses.

        ::

            loader = warpfeed.Loader([("photos", 0.5), ("sketches", 0.5)], seed=42)
            for batch in loader:
                ...
                loader.set_mixture([0.8, 0.2], after_batches=10)

        The change takes effect at the start of a round (see :class:`Mixture`): the first round that
        begins after at least ``after_batches`` further batches. The round depends neither on
        ``prefetch`` nor on the number of ranks. If batches after this point are already prepared,
        all prepared batches are dropped and prepared again. The change replaces the rest of a
        schedule, and changes from earlier calls that have not taken effect yet.

        Every rank must make the same calls after the same batches. With ``distributed=True``, this
        is checked. :meth:`state_dict` contains all calls.

        Args:
            proportions: one number per dataset. The numbers need not sum to 1.
            after_batches: number of further batches before the change.

        Returns:
            The epoch and the index of the first batch that contains samples drawn with the new
            proportions.

        Raises:
            ConfigError: if the loader is not a mixture, if the proportions are invalid, if they
                would change the length of the run, if an image combines several samples, as in a
                mosaic, or if ``after_batches`` exceeds 2**24. In these cases, the loader is
                unchanged. The error is also raised if another rank made a different call.
        """
        values = proportions_of("proportions", proportions)
        position = self._core.set_mixture(values, _options.integer("after_batches", after_batches))
        self._check_same_call("set_mixture", position, values)
        return position

    def set_weights(self, weights: Iterable[float], *, after_batches: int = 0) -> tuple[int, int]:
        """Changes the ``weights`` of the samples during the run.

        The change takes effect after ``after_batches`` further batches. If later batches are
        already prepared, all prepared batches are dropped and prepared again. To avoid this delay,
        set ``after_batches`` to a few batches more than ``prefetch``, and to the same number on
        every rank.

        Every rank must make the same calls after the same batches. With ``distributed=True``, this
        is checked. :meth:`state_dict` contains the calls that affect the epoch in progress. After a
        call, requesting an epoch before the epoch in progress may fail, because its weights are
        lost.

        Args:
            weights: one weight for each sample of the whole dataset. Pass an array for many
                samples.
            after_batches: number of further batches before the change.

        Returns:
            The epoch and the index of the first batch that is drawn with the new weights.

        Raises:
            ConfigError: if the loader was opened without ``weights`` or ``balanced``, if the
                weights are invalid, if an image combines several samples, as in a mosaic, or if
                ``after_batches`` exceeds 2**24. In these cases, the loader is unchanged. The error
                is also raised if another rank made a different call.
        """
        values = Floats("weights", weights)
        position = self._core.set_weights(values, _options.integer("after_batches", after_batches))
        self._check_same_call("set_weights", position, values)
        return position

    def _check_same_call(self, call: str, position: tuple[int, int], values: Any) -> None:
        """Raises an error if another rank made a different call."""
        if self._rank_choice == "detected" and self.world_size > 1:
            value_chunks = values if isinstance(values, Floats) else [repr(values).encode()]
            digest = hashlib.sha256()
            for chunk in value_chunks:
                digest.update(chunk)
            run = {"position": list(position), "values": digest.hexdigest()}
            _ranks.check_same(call, self.rank, self.world_size, run)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next ``iter`` continue from ``state``. The number of workers may differ from
        the saved run. With ``global_batch_size``, the number of ranks may also differ.

        Raises:
            ConfigError: if the seed, the global batch size, ``last_batch``, the order, the
                augmentation or the dataset differs, or if ``state`` is not a result of
                :meth:`state_dict`.
            TypeError: if ``state`` is not a dict.
        """
        text = _options.state_text(state, "state")
        self._check_last_batch(state)
        self._core.resume(text)

    def _position_of(self, state: Mapping[str, Any]) -> tuple[int, int]:
        """Returns the epoch and the batch at which a run would continue from ``state``."""
        text = _options.state_text(state, "state")
        self._check_last_batch(state)
        self._core.check(text)
        epoch, batch = int(state["epoch"]), int(state["batch"])
        return (epoch + 1, 0) if batch > 0 and batch == self._core.num_batches(epoch) else (epoch, batch)

    def stats(self) -> Stats:
        """Returns the statistics so far, as a dict that prints as a table.

        :class:`Stats` describes the keys: batches, samples and seconds, the time spent waiting for
        batches, the time of each worker stage, memory, damage and retries. For an experiment
        tracker, ``stats().flat()`` returns only the numbers.
        """
        stats = Stats(*self._core.stats())
        stats["options"] = self._call_text(_short_repr.repr)
        return stats

    def device_stats(self) -> dict[str, int] | None:
        """Returns the statistics of the device, or None for host batches.

        The dict has these keys: ``allocated_bytes``, the size of the device batches that are ready
        or in use; ``peak_bytes``, the maximum of ``allocated_bytes`` so far; ``reserved_bytes``,
        the device memory that opening the loader allocated; ``batch_copies``, the number of copies
        of a batch to the device; and ``copied_bytes``, the number of bytes copied to the device.
        """
        stats = self._core.device_stats()
        return None if stats is None else dict(json.loads(stats))

    def verdict(self) -> Report:
        """Returns the bottleneck and how to remove it, as a dict that prints as text."""
        return Report(*self._core.verdict())

    def image_transform_cost(self) -> dict[str, float]:
        """Returns the cost of ``image_transform``: the number of ``calls``, and the total seconds
        ``in_function``, for the ``transfer`` of pixels to a process and back, and
        ``waiting_for_a_process``. The dict is empty if the loader has no ``image_transform``.

        The cost per call is also logged when the loader is closed.
        """
        return {} if self._image_transform is None else self._image_transform.cost()

    def memory_plan(self) -> Report:
        """Returns how many bytes of memory the loader needs, as a dict that prints as a
        sentence."""
        return Report(*self._core.memory_plan())

    def sample_errors(self) -> list[tuple[int, int, Exception]]:
        """Returns the epoch, the batch and the error of the first failure of each skipped
        sample."""
        return list(self._core.faults())

    @property
    def dataset(self) -> Dataset:
        """The stored samples: ``loader.dataset[id]`` is a sample without augmentation, and
        ``len(loader.dataset)`` is the number of samples, or the size of the ``subset``."""
        return Dataset(self, self._selection)

    @property
    def classes(self) -> list[str]:
        """Class names, indexed by label, as in torchvision's ``ImageFolder``. Empty if the dataset
        has no class names."""
        return list(self._core.classes())

    @property
    def category_ids(self) -> list[int]:
        """The dataset's own id for each class, indexed by label, such as the category ids that
        COCO's evaluation needs. Empty if the dataset has no such ids."""
        return list(self._core.category_ids())

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Labels by class name, as in torchvision's ``ImageFolder``."""
        return {name: label for label, name in enumerate(self.classes)}

    def sample(self, id: int) -> dict[str, Any]:
        """Returns the sample with index ``id`` without augmentation. Indices have the same meaning
        as in ``batch.ids``.

        The dict has the keys ``id``, ``key``, ``label`` (None if the sample has no label) and, if
        the sample has an image, ``image``. The image contains all pixels after the EXIF rotation,
        as uint8: with ``output="torch"`` as a tensor (3, height, width), otherwise as a NumPy array
        (height, width, 3). Other fields keep the names under which they are stored: ``x.npy``
        becomes an array, ``x.json`` is parsed, ``x.txt`` becomes a string, and all others are
        bytes.

        Raises:
            ConfigError: if the dataset has no sample with this index, or if a field does not have
                the encoding that its suffix declares.
            WarpfeedError: if the sample cannot be read or its image cannot be decoded.
        """
        id = _options.integer("id", id)
        key, label, image, fields = self._core.sample(id)
        sample: dict[str, Any] = {"id": id, "key": key, "label": label}
        if image is not None:
            sample["image"] = self._delivery.stored_image(*image[1:])
        sample.update((name, decoded(name, content)) for name, content in fields)
        return sample

    def _labels(self, ids: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
        import numpy as np

        return np.frombuffer(self._core.labels(ids), np.int64).copy()

    def dataset_index(self, id: int) -> int:
        """Returns the index of the dataset that contains sample ``id``, within the mixture or the
        :class:`Concat`. For other datasets, the index is 0."""
        return int(self._core.dataset_index(_options.integer("id", id)))

    @property
    def rank(self) -> int:
        """Rank of this loader."""
        return int(self._core.rank()[0])

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return int(self._core.rank()[1])

    @property
    def num_workers(self) -> int:
        """Number of worker threads."""
        return int(self._core.settings()[0])

    @property
    def prefetch(self) -> int:
        """Number of batches that the loader currently tries to prepare in advance."""
        return int(self._core.settings()[1])

    def samples_of_rank(self) -> int:
        """Approximate number of samples of this rank in the next epoch."""
        return int(-(-self._core.epoch_len(self.epoch) // self.world_size))

    def close(self) -> None:
        """Stops all threads. Batches that have been delivered stay valid.

        The loader is also closed when its last reference is dropped, and when the process exits.
        """
        try:
            self._core.close()
        finally:
            if self._image_transform is not None:
                self._image_transform.end()
            _log_messages()

    def _begin_close(self) -> bool:
        """Begins to close the loader without waiting. Returns whether its threads have ended."""
        return bool(self._core.begin_close())

    def _running_callbacks(self) -> list[str]:
        """Returns the names of the user's callbacks that are running."""
        return list(self._core.running_callbacks())

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles the arguments and the position. Unpickling opens a new loader at this position.

        The new loader has the same next epoch and the same :meth:`state_dict`. Attributes that a
        subclass has set are preserved.

        Raises:
            TypeError: if the loader has a ``trace``, because two loaders would write to the same
                file.
        """
        if "trace" in self._arguments:
            raise TypeError(
                f"trace={self._arguments['trace']!r}: a loader with a trace cannot be pickled, because two loaders "
                "would write to the same file"
            )
        state = self.state_dict()
        position = state if (state["epoch"], state["batch"]) != (0, 0) else None
        attributes = {name: value for name, value in vars(self).items() if name not in self._own_attributes}
        return _reopen, (type(self), self._arguments, self.epoch, position), attributes or None

    def __repr__(self) -> str:
        return self._call_text(repr)

    def _call_text(self, value_text: Callable[[Any], str]) -> str:
        """Returns the source text of a call that creates this loader. `value_text` formats a
        value."""
        texts = {name: _array_text(value) or value_text(value) for name, value in self._arguments.items()}
        data = texts.pop("data")
        return f"{type(self).__name__}({', '.join([data, *(f'{name}={text}' for name, text in texts.items())])})"

    def _deliver(self, native: Any) -> Any:
        """Converts a native batch to the form that the user receives."""
        names, properties = native.fields(), properties_of(native)
        texts = {name: native.texts(name) for name, kind in self._field_types.items() if isinstance(kind, Text)}
        absent: dict[str, Exception] = {}
        fields: Fields
        if names == ["image", "label"] and not texts:
            fields = (self._field(native, "image"), self._field(native, "label"))
        else:
            fields = {}
            for name in names:
                try:
                    fields[name] = self._field(native, name)
                except WarpfeedError as e:
                    if name != "label" or self._needs_label or e.kind != "source":
                        raise
                    # A copy, because the traceback and the context of `e` reference this batch.
                    absent[name] = copy_of(e)
            if "image" not in names and self._may_lack_images:
                absent["image"] = KeyError(
                    "image: the dataset has no images. If a column of a CSV, TSV or JSON Lines file contains image "
                    "paths, pass table=TableOptions(image=...). A Parquet column must contain the images themselves: "
                    "write a table of paths as CSV or JSON Lines"
                )
        if isinstance(fields, dict):
            fields.update(texts)
        if self._views and isinstance(fields, dict):
            fields = {"views": [fields.pop(name) for name in self._views], **fields}
        if self._batch_transform:
            fields = self._batch_transform(fields, self._seed, self.rank, properties)
        if self._collate is not None:
            fields_by_name = fields if isinstance(fields, dict) else dict(zip(("image", "label"), fields, strict=True))
            return self._collate(Collated(fields_by_name, properties, absent, self._delivery, self._field_types))
        if isinstance(fields, tuple):
            return Batch(fields, properties, self._delivery)
        return FieldBatch(fields, properties, absent, self._delivery)

    def _field(self, native: Any, name: str) -> Any:
        return self._delivery.field(native, name, name in self._image_fields)


class _Epoch:
    """An iterator over one epoch."""

    def __init__(self, loader: Loader, start: tuple[int, int] | None = None) -> None:
        self._loader: Loader | None = loader
        self._generation: int | None = None
        self._batches = 0
        # The epoch and the first batch, if requested explicitly.
        self._start = start
        # Only one of the threads that share an iterator may begin the epoch. The lock is reentrant,
        # because a signal handler on this thread may also call `next`.
        self._lock = threading.RLock()
        self._is_beginning = False

    def __iter__(self) -> _Epoch:
        return self

    def __next__(self) -> Any:
        loader = self._loader
        if loader is None:
            raise StopIteration
        if self._generation is None:
            with self._lock:
                if self._generation is None:
                    self._generation, self._batches = self._begin(loader)
        try:
            native = loader._core.next(self._generation)
        finally:
            _log_messages()
        if native is None:
            self._loader = None
            raise StopIteration
        return loader._deliver(native)

    def _begin(self, loader: Loader) -> tuple[int, int]:
        if self._is_beginning:
            raise ConfigError(
                "this thread is already beginning the epoch of this iterator; in a signal handler or a sampler, use "
                "a new iterator: next(iter(loader))"
            )
        self._is_beginning = True
        try:
            return loader._begin(self._start)
        finally:
            self._is_beginning = False

    def __len__(self) -> int:
        """Returns the number of batches of this iterator, including delivered batches."""
        loader = self._loader
        if self._generation is not None or loader is None:
            return self._batches
        return int(loader._core.batches_from(self._start))

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("an iterator cannot be pickled; pickle the loader, or its state_dict()")

    def __del__(self) -> None:
        # The user has stopped iterating before the end of the epoch.
        loader, generation = self.__dict__.get("_loader"), self.__dict__.get("_generation")
        if loader is not None and generation is not None:
            loader._core.end(generation)


def _reopen(
    cls: type[Loader], arguments: dict[str, Any], epoch: int, position: Mapping[str, Any] | None = None
) -> Loader:
    # The constructor of a subclass may have different arguments. Pickle later restores its
    # attributes.
    loader = cls.__new__(cls)
    Loader.__init__(loader, **arguments, resume=position)
    loader.set_epoch(epoch)
    return loader


#: Options that this package handles itself, or passes to the extension module under other names.
_PYTHON_OPTIONS = (
    *_delivery.OPTIONS, "image_transform", "image_transform_processes", "batch_transform", "collate", "shuffle", "seed", "drop_last",
    "last_batch", "rank", "world_size", "distributed",
)  # fmt: skip
