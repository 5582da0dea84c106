"""The loader."""

from __future__ import annotations

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
from ._batch import Batch, Collated, FieldBatch, facts_of
from ._batch_transform import BatchTransform, Collate, Fields
from ._buckets import Buckets
from ._closing import close_at_exit
from ._error import ConfigError, WarpfeedError
from ._fields import DenseMap, Image, Text, TokenIds, check_images, check_none_follows
from ._image_transform import ImageTransform
from ._number_lists import Chosen
from ._report import Report, Stats
from ._samples import mixture
from ._sources import TableOptions, Tokens, names_url
from ._trainers import BatchSampler, Dataset, Sampler, Skipped, decoded
from ._types import Device, Dtype, Normalize, Trace

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Loader"]

_log = logging.getLogger("warpfeed")
_warpfeed.start_log()

#: Prints values, and cuts long lists short.
_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 1000
_brief.maxdict = 100

#: A function on whole batches.
Transform = Callable[..., Any]


def _log_messages() -> None:
    for level, text in _warpfeed.drain_log():
        try:
            _log.log(level, "%s", text)
        except Exception:
            # An error in a logging handler must not lose the batch that has just arrived. It is
            # printed, as `logging` does with the errors that it catches.
            if logging.raiseExceptions and sys.stderr is not None:
                traceback.print_exc()


class Loader(_other_names.EarlierNames):
    """Loads batches: ``for images, labels in loader``.

    The constructor opens the loader: it starts the threads and allocates all batch memory. Each
    ``for`` loop over the loader runs the next epoch, unless :meth:`set_epoch` was called.

    All arguments except ``data`` are keyword arguments.

    Args: Data
        data: the dataset.

            - The path or URL of a dataset: a folder of class folders, a flat folder, an LMDB, tar shards or a
              pattern such as ``train-{000..099}.tar``, Parquet or Arrow files (Hugging Face), MDS shards,
              LitData chunks, FFCV's ``.beton``, RecordIO, TFRecord, arrays (NumPy, safetensors, PyTorch,
              HDF5), a table (CSV, TSV, JSON lines), or a COCO, YOLO or Pascal VOC dataset.
            - A :class:`Coco`, :class:`Yolo`, :class:`Voc`, :class:`Tokens` or :class:`Concat`.
            - An object with ``__len__`` and ``__getitem__`` that returns an image, ``(image, label)`` or a
              ``dict`` of fields. An image is ``bytes``, a path, an array or a tensor of pixels, or a Pillow
              image. The EXIF orientation of files, bytes and Pillow images is applied. Arrays and
              tensors have no orientation.
            - A mixture, ``[(data, share), ...]``, which draws samples in these proportions.
        table: roles of the columns of a table. Datasets without columns reject this option.
        masks: folder with the masks of a folder of images, next to that folder: for ``"CamVid/train"``,
            ``masks="trainannot"`` is ``CamVid/trainannot``. The mask of ``a/1.jpg`` is ``a/1.png`` there, or
            ``.npy``, ``.tif``, ``.gif``, ``.bmp`` or ``.webp``. It becomes the field ``mask`` for
            :class:`Mask`. A ``*`` in the last part of ``masks`` stands for the name of an image:
            ``"masks/*_mask"``.
        classes: class names. The label of a class is the position of its name in this list,
            whatever numbers the dataset uses.
        classes_file: file with the class names: one per line, or a JSON list.
        match_labels_by_name: assigns the same label to classes with the same name in all datasets
            of a mixture.
        keep_labels: keeps the labels of a mixture unchanged, even if the class names of its datasets differ.

    Args: Batches
        batch_size: number of samples in a batch of this rank; 32 by default.
        drop_last: ``drop_last=True`` stands for ``last_batch="drop"``, as in PyTorch.
        last_batch: what happens to an incomplete last batch: ``"keep"`` (the default), ``"drop"`` or ``"pad"``.
        num_workers: number of worker threads. None, the default, starts one thread per core. The
            ranks on a machine share its cores. There are no worker processes, so 0 is rejected.
        prefetch: number of batches that are prepared in advance. None, the default, adjusts the
            number while the loader runs.
        batch_transform: a function on whole batches, or a list of functions that are called one
            after another: ``f(images, labels)``, or ``f(fields)`` if the batch is a dict. Each must
            return a pair ``(images, labels)`` or a dict. A function may have the keyword-only
            parameters ``epoch``, ``number`` (the index of the batch within its epoch) and ``seed``:
            ``def f(images, labels, *, seed)``. ``seed`` differs for each batch and rank, and is the
            same after a resume. If a function raises an exception, the loader raises a
            :class:`WarpfeedError` that names the batch and has the exception as its cause.
        collate: a function ``f(batch)``, whose result is yielded in place of the batch. It runs
            after ``batch_transform``. ``batch`` is a dict of all fields, including ``image`` and
            ``label``, with ``epoch``, ``number``, ``ids``, ``valid`` and the other properties of a
            batch. Exceptions are reported as for ``batch_transform``. :mod:`warpfeed.collate`
            provides ready-made functions.

    Args: Order
        shuffle: whether each epoch uses a new random order; False by default.
        seed: seed of the shuffle and of all augmentation; 0 by default.
        shuffle_window: shuffles within windows of about this many samples.
        sampler: a function ``f(epoch)`` that returns the indices of the samples of an epoch in order, as in
            ``batch.ids``. An index outside ``subset`` raises an error. A repeated index delivers
            its sample again, with a different augmentation. The function is called when its epoch
            begins, so it may depend on state that changes between epochs, such as a curriculum or
            losses. ``len`` and ``state_dict`` may also call it. With ``epochs``, it is called
            during the previous epoch, and must then return the same indices on each call for the
            same epoch. Exceptions are reported as for ``batch_transform``.
        subset: indices of the samples to deliver. ``loader.dataset`` then contains only these
            samples. A repeated index delivers its sample again, with a different augmentation. Pass
            an array for many samples. Indices do not change: ``batch.ids``, ``sampler``,
            ``weights``, ``buckets`` and ``loader.dataset[id]`` still refer to the whole dataset.
        weights: weight of each sample of the whole dataset. Samples are drawn with replacement, and
            with ``subset`` only from the subset. Pass an array for many samples.
        balanced: draws all classes equally often.
        buckets: lengths of the samples, which group samples of similar lengths into batches. See
            :class:`Buckets`.
        repeat: number of passes over the samples in an epoch.
        epochs: number of epochs that you will use. While an epoch ends, the loader prepares the
            first batches of the next one, except after the last of these epochs. Later epochs can
            still be requested. With 0, nothing is prepared before an epoch is requested. The
            default is 0 with ``sampler``, and unlimited otherwise.
        resume: a result of :meth:`state_dict`. The loader continues from this position.

    Args: Images
        augment: augmentation of each image; ``Augment.eval(256, 224)`` by default.
        views: augmentations for several views of each image, which replace the image. The batch is
            then a dict, in which ``views`` is a list with one tensor per augmentation. Each view
            draws its own random numbers.
            :meth:`Augment.simclr_views` and :meth:`Augment.dino_views` return such lists.
        dtype: element type of the images: ``"u8"``, ``"f16"``, ``"bf16"``, ``"f32"``, or the same type of torch or
            NumPy. The default is ``"f32"`` with ``normalize``, and ``"u8"`` without.
        normalize: ``"imagenet"`` or ``(mean, std)`` on a scale of 0 to 1. Numbers on a scale of 0
            to 255 are rejected. Without ``normalize``, floats are ``pixel / 255``.
        layout: ``"channels_last"``, the default for torch, is (N, 3, H, W) over NHWC memory. ``"nhwc"``, the
            default otherwise, is (N, H, W, 3). ``"nchw"`` is contiguous.
        channels: pass 1 for grayscale images, (N, 1, H, W), which contain the luminance of the
            finished image. Supported only in host memory. Use :class:`DenseMap` for 16-bit or float
            images, and for other numbers of channels.
        background: color behind transparent pixels, such as ``(255, 255, 255)``. By default alpha is dropped.
        convert_to_u8: converts 16-bit images to their upper byte, and floats from the range 0 to 1
            to the range 0 to 255. Without this option, samples with such an image fail.
        image_transform: a function ``f(image, rng)`` that is called on each image after
            ``augment``. ``image`` is a NumPy array (H, W, 3) of uint8, and ``rng`` a
            ``numpy.random.Generator`` that depends only on (seed, epoch, sample). The function
            returns an array of the same shape. The padding of ``own_size`` and ``letterbox`` is not
            part of ``image``. The function runs in worker processes with the start method "spawn",
            so it must be picklable. Pixels are passed in shared memory. You can also pass an
            albumentations pipeline.
        processes: number of processes for ``image_transform``; by default one per core, and at most
            ``num_workers``. With 0, the worker threads call the function while they hold the
            interpreter's lock. This is the default for an interpreter without this lock.
        image_transform_moves_pixels: pass False to declare that ``image_transform`` does not move
            pixels, such as a change of colors. This is required if the loader also has fields that
            are transformed with the image, such as masks and boxes, because ``image_transform``
            does not change these fields.

    Args: Fields
        fields: additional fields by name: ``{"emb": NdArray("f32", [768]), "boxes": Boxes(100)}``.
        drop_field: fields to leave out: ``"label"`` or ``["image", "label"]``.
        soft_labels: ``(classes, smoothing)`` adds the field ``soft_label``, (N, classes) f32, and the batch is a
            dict. ``classes`` is the number of classes. For a dataset with class names, such as
            class folders, you can pass only the smoothing, such as ``0.1``. Mixing (:class:`Mix`)
            requires this option.
        unlabeled: reads missing labels as -1. Without it, a batch with more fields has no ``label`` if no sample
            has a label.
        annotations_follow: which version of an image its boxes, masks and points refer to, if EXIF
            rotates the image and the sizes are ambiguous: ``"stored"``, the pixels in the file, or
            ``"upright"``. By default, such a sample fails.

    Args: Device
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, a number or a ``torch.device``. Batches on a device are ordered
            on torch's current stream.
        output: ``"torch"``, ``"numpy"`` or ``"dlpack"``. The default is torch if it is installed, and NumPy
            otherwise.
        copy: True copies every tensor, and False copies none. The default copies fields of up to 64
            KiB per batch, and the whole batch if no other slot is free.
        pin_memory: page-locks host memory.
        decode_on: where JPEGs of batches on a device are decoded, with the same pixels: ``"cpu"``, ``"gpu"`` or
            ``"auto"``. ``"auto"`` uses the device if the threads alone are too slow, and is fastest
            with packed files. This option has no effect on batches in host memory.
        decode_share: maximum share of the device's time for decoding, from 0 to 1.

    Args: Several GPUs
        distributed: True reads the rank from ``torch.distributed`` or from the launcher's
            environment. False delivers all samples to every rank. A process that is one of several
            ranks must pass ``distributed`` or ``rank``. If ``torch.distributed`` is initialized
            after the loader was opened, this is checked when the first batch is requested.
        rank: rank of this process; needs ``world_size``.
        world_size: number of ranks.
        global_batch_size: number of samples per batch, summed over all ranks; replaces
            ``batch_size``.

    Args: Storage
        mmap: maps tar shards into memory instead of reading them.
        index: caches the listing of a local folder in the file ``<folder>.warpfeed-index`` next to
            it. Other datasets reject this option.
        cache_bytes: maximum size of the local cache for data from URLs. By default, nothing is
            cached. Local datasets reject this option.
        cache_dir: folder of this cache; ``$XDG_CACHE_HOME/warpfeed/blocks`` by default. The loader
            creates it. The folder must not contain other files. All processes on a machine may
            share it.
        cache_refresh: lists stores again instead of using the cached listings, which do not contain
            objects that were added later.

    Args: Errors and limits
        max_skipped: number of bad samples that may be skipped. By default, the first bad sample
            raises an error.
        strict: makes a sample fail if its JPEG contains damage of the kind that libjpeg only warns
            about. Each file is then read to its end, which takes time. Without ``strict``,
            ``stats()["damaged"]`` counts the damaged images that were decoded, once per epoch and
            image, and the log names each damaged image once.
        retries: number of times that a failed read is repeated; 3 by default.
        timeout: number of seconds that ``next`` waits while all batches are still in use; 30 by
            default.
        memory_limit: maximum size of the memory plan, in bytes.
        max_pixels: maximum size of an image that is decoded, in pixels; 2**28 by default.
        max_sample_bytes: maximum size of a sample that is read, in bytes; 2**31 by default.
        trace: path of a trace in Perfetto's format, or ``(path, (wait, warmup, active, repeat))``. The file is
            complete after each window, and when the loader is closed.

    Raises:
        ConfigError: if an option cannot work. It is also a ``ValueError``.
        WarpfeedError: if the dataset cannot be opened. A missing path is also a ``FileNotFoundError``.
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
        buckets: Buckets | None = None,
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
        processes: int | None = None,
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
        index: bool = False,
        cache_bytes: int | None = None,
        cache_dir: _options.Path | None = None,
        cache_refresh: bool = False,
        # Errors and limits
        max_skipped: int | None = None,
        strict: bool = False,
        retries: int | None = None,
        timeout: float | None = None,
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
                f"sampler={sampler!r}: expected a function f(epoch) that returns the indices of an epoch; in place of "
                "a sampler of torch use shuffle, weights or distributed, or sampler=lambda epoch: list(s)"
            )
        listed = isinstance(views, (list, tuple)) and len(views) > 0 and all(isinstance(view, Augment) for view in views)
        if views is not None and not listed:
            raise TypeError(f"views={views!r}: expected a list of warpfeed.Augment")
        if views is not None and "views" in (fields or {}):
            raise ConfigError(
                "fields: a field called 'views' would replace the views in the batch; choose another name"
            )
        if views is not None and augment is not None and not any(isinstance(k, Image) for k in (fields or {}).values()):
            raise ConfigError(
                "augment and views: views replace the image; leave augment out, or add fields={'image': Image()}"
            )
        if isinstance(data, Tokens):
            # Token files have neither images nor labels.
            fields = {"tokens": TokenIds(data.length)} if fields is None else fields
            names = [drop_field] if isinstance(drop_field, str) else drop_field
            drop_field = [*names, *(name for name in ("image", "label") if name not in names and name not in fields)]
        given, defaults = _options.given(Loader.__init__, locals(), unknown), Loader.__init__.__kwdefaults__ or {}
        _options.exclusive(
            given, ("batch_size", "global_batch_size"), ("classes", "classes_file"), ("drop_last", "last_batch")
        )
        if isinstance(data, (list, tuple)):
            data = mixture(data)
        # A local table may name files in a store.
        if (cache_bytes is not None or cache_refresh) and table is None and not names_url(data):
            option = "cache_refresh" if cache_bytes is None else "cache_bytes"
            raise ConfigError(
                f"{option}: the cache keeps data from URLs, and this dataset is local; leave {option} out"
            )
        for option, draws in (("weights", weights is not None), ("balanced", balanced)):
            if shuffle and draws:
                raise ConfigError(
                    f"shuffle=True and {option}: the draws are random already; leave shuffle out, and keep seed"
                )
        # Attributes that have already been set belong to a subclass.
        foreign = set(vars(self))
        # Arguments that open the same loader in another process.
        changed = {name: value for name, value in given.items() if value is not defaults[name] and name != "resume"}
        self._arguments = {"data": data, **changed}

        self._delivery = delivery = _delivery.Delivery(output, device, layout, copy)
        self._seed = seed or 0
        options = {
            "data": data,
            **_options.native(given, leave_out=_PYTHON_OPTIONS),
            **_ranks.options(rank, world_size, distributed),
            "shuffle" if shuffle else "seed": self._seed,
            "last_batch": last_batch or ("drop" if drop_last else "keep"),
            "layout": delivery.layout,
        }
        check_images(given, defaults, fields or {}, options["drop_field"], views)
        # Store copies, because the caller may change its lists later and a pickled loader must have
        # the same order.
        self._arguments.update((name, options[name].values) for name in ("subset", "weights") if name in options)
        maps = {name: kind for name, kind in (fields or {}).items() if isinstance(kind, DenseMap)}
        if maps:
            laid_out = {name: kind._laid_out(delivery.layout) for name, kind in maps.items()}
            options["fields"] = {**options["fields"], **laid_out}
            # The native module rejects an image layout if there are no images.
            of_images = views or any(isinstance(kind, Image) for kind in (fields or {}).values())
            if not of_images and ("image" in maps or "image" in options["drop_field"]):
                del options["layout"]
        #: Number of samples in a batch of this rank, as given.
        self.batch_size = 32 if batch_size is None and global_batch_size is None else batch_size
        #: Whether an incomplete last batch is dropped.
        self.drop_last = options["last_batch"] == "drop"
        #: Whether host memory is page-locked.
        self.pin_memory = bool(pin_memory)
        #: Number of the CUDA device; None for host memory.
        self.device = delivery.device
        #: For trainers that call ``loader.sampler.set_epoch``.
        self.sampler = Sampler(self)
        #: For Lightning, which reads it during validation. It cannot be iterated.
        self.batch_sampler = BatchSampler()
        self._batch_transform = BatchTransform(batch_transform)
        self._collate = None if collate is None else Collate(collate)
        self._field_types = dict(fields or {})
        self._views = [f"views.{n}" for n in range(len(views or ()))]
        images = {name for name, kind in (fields or {}).items() if isinstance(kind, Image)}
        # Dense maps use the layout of the images.
        self._image_fields = {"image", *self._views, *images, *maps}
        # Labels that the user did not request explicitly may be missing in a batch with more
        # fields.
        self._needs_label = unlabeled or soft_labels is not None or "label" in (fields or {})
        # Whether batches may turn out to have no images because the dataset has none.
        self._may_lack_images = not views and "image" not in options["drop_field"]
        # Whether the run has been compared with those of other ranks.
        self._compared = False
        # Whether this process was given its share of the samples, has requested one, or neither.
        self._share = "given" if rank is not None or distributed is False else "asked" if distributed else None
        if processes is not None and image_transform is None:
            raise ConfigError(
                f"processes={processes}: they run image_transform=f, which is missing; the option for worker threads "
                "is num_workers"
            )
        if image_transform_moves_pixels is not None and image_transform is None:
            raise ConfigError(
                f"image_transform_moves_pixels={image_transform_moves_pixels}: it describes image_transform=f, which "
                "is missing"
            )
        if image_transform is not None and image_transform_moves_pixels is not False:
            check_none_follows(fields or {}, image_transform_moves_pixels)
        self._image_transform = None
        if image_transform is not None:
            self._image_transform = ImageTransform(image_transform, processes, num_workers)
            options["image_transform"] = self._image_transform.native
        try:
            self._core = _warpfeed.Core(options, delivery.native())
        except BaseException:
            if self._image_transform is not None:
                self._image_transform.end()
            raise
        finally:
            # Log warnings before the error that they explain is raised.
            _log_messages()
        close_at_exit(self)
        # A batch that is a pair needs both an image and a label.
        left_out = set(options.get("drop_field", ()))
        pair = not views and not left_out and set(fields or ()) <= {"image", "label"}
        if (pair or self._needs_label) and not unlabeled and "label" not in left_out and self._core.lacks_labels():
            self.close()
            raise ConfigError(
                f"{data}: images in one folder have no labels; pass unlabeled=True to read them as -1, or "
                "drop_field=['label'] to leave them out"
            )
        self._chosen = Chosen(options["subset"].values if "subset" in options else None, self._core.source_len())
        self._own = frozenset(vars(self)) - foreign

    def __iter__(self) -> Iterator[Any]:
        """Returns an iterator over the next epoch.

        If a sample is bad, ``next`` raises its error in place of the batch. If you catch the error
        and call ``next`` again, you get the following batch. Until then, :meth:`state_dict` stays
        at the bad batch.

        The epoch begins when its first batch is requested. Until then, :meth:`set_epoch` may change
        its number, and an iterator that is never used does not count as an epoch. Beginning an
        epoch ends the previous one. While an epoch ends, the loader prepares the first batches of
        the epoch with the next number, and discards them if a different epoch is requested.
        """
        return _Epoch(self)

    def epoch_from(self, epoch: int, first: int) -> Iterator[Any]:
        """Returns an iterator over epoch ``epoch`` that starts at batch ``first``, at no extra cost.

        The following ``iter`` returns the next epoch.
        """
        return _Epoch(self, (_options.number("epoch", epoch), _options.number("first", first)))

    def skip_first_batches(self, num_batches: int) -> Skipped:
        """Returns the next epoch without its first ``num_batches``, like accelerate's function of
        the same name. The skipped batches are not read.

        The epoch is the value of :attr:`epoch` when ``iter`` is called. After resuming, call
        :meth:`set_epoch` first, because the order of an epoch depends on its number.
        """
        return Skipped(self, _options.number("num_batches", num_batches))

    def replay(self, n: int) -> Iterator[Any]:
        """Repeats the first ``n`` batches of epoch 0 endlessly.

        Use it to measure a training step without loading. The statistics do not include these
        batches, and the step must not write to them. Calling this method ends the current epoch.

        Raises:
            WarpfeedError: if ``n`` is 0, or more than ``prefetch`` + 1 (3 if ``prefetch`` is automatic).
        """
        self._check_world()
        batches = self._core.replay(_options.number("n", n))
        _log_messages()
        return map(self._made, itertools.cycle(batches))

    def _begin(self, at: tuple[int, int] | None) -> tuple[int, int]:
        """Begins the next epoch, or starts at ``at`` (epoch, batch). Returns its turn and its number of
        batches."""
        self._check_world()
        if self._share == "asked" and self.world_size > 1 and not self._compared:
            self._compared = True
            self._check_same(self.epoch if at is None else at[0])
        return self._core.begin(at)

    def _check_same(self, epoch: int) -> None:
        """Raises an error if another rank begins with different samples or at a different position."""
        data, state = self._arguments["data"], self.state_dict()
        name = os.path.basename(os.fspath(data)) if isinstance(data, (str, os.PathLike)) else type(data).__name__
        run = {what: state[what] for what in ("seed", "global_batch", "samples", "epoch_samples", "order", "probes", "batch")}
        _ranks.check_same(name, self.rank, self.world_size, {**run, "epoch": epoch})

    def _check_world(self) -> None:
        """Raises an error if this rank is one of several and no share of the samples was chosen."""
        if self._share != "given":
            _ranks.check_world(self.rank, self.world_size, None if self._share is None else True)

    def __len__(self) -> int:
        """Returns the number of batches of the next epoch on this rank."""
        return int(self._core.num_batches(self.epoch))

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next ``iter``.

        After :meth:`load_state_dict`, the epoch of the state begins at the saved batch. Earlier
        epochs are empty.
        """
        self._core.set_epoch(_options.number("epoch", epoch))

    @property
    def epoch(self) -> int:
        """The epoch of the next ``iter``."""
        return int(self._core.epoch())

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the run, exact to the last delivered batch.

        The dict consists of numbers and strings, so JSON and ``torch.load(weights_only=True)`` support
        it. Ranks that have received the same number of batches have the same state.
        """
        state: dict[str, Any] = json.loads(self._core.checkpoint())
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state`` with the next ``iter``. The numbers of workers and ranks may
        differ from those of the saved run.

        Raises:
            WarpfeedError: if the seed, the global batch, the order or the dataset differs.
        """
        self._core.resume(_options.state_text(state, "state"))

    def _position_of(self, state: Mapping[str, Any]) -> tuple[int, int]:
        """Returns the epoch and the batch at which a run continues from ``state``. The position of
        this loader does not change.

        Raises:
            WarpfeedError: as :meth:`load_state_dict`.
        """
        self._core.check(_options.state_text(state, "state"))
        epoch, batch = int(state["epoch"]), int(state["batch"])
        return (epoch + 1, 0) if batch > 0 and batch == self._core.num_batches(epoch) else (epoch, batch)

    def stats(self) -> Stats:
        """Returns the statistics so far: a dict, which prints as a table.

        :class:`Stats` lists the keys: batches, samples and seconds, the waits for batches, the
        time of each stage of the workers, memory, damage and retries. ``stats().flat()`` has only the
        numbers, for an experiment tracker.
        """
        stats = Stats(*self._core.stats())
        stats["options"] = self._written(_brief.repr)
        return stats

    def device_stats(self) -> dict[str, int] | None:
        """Returns how many bytes of device memory are in use and how many bytes were copied, or
        None without a device."""
        stats = self._core.device_stats()
        return None if stats is None else dict(json.loads(stats))

    def verdict(self) -> Report:
        """Returns the bottleneck and its remedies: a dict, which prints as text."""
        return Report(*self._core.verdict())

    def image_transform_cost(self) -> dict[str, float]:
        """Returns the cost of ``image_transform``: the number of ``calls``, and the total seconds
        ``in_function``, for the ``transfer`` to a process and back, and ``waiting_for_a_process``.

        Closing the loader logs these numbers.
        """
        return {} if self._image_transform is None else self._image_transform.cost()

    def memory_plan(self) -> Report:
        """Returns how much memory the loader needs, in bytes: a dict, which prints as a
        sentence."""
        return Report(*self._core.memory_plan())

    def sample_errors(self) -> list[tuple[int, int, Exception]]:
        """Returns the epoch, the batch and the error of each skipped sample."""
        return list(self._core.faults())

    @property
    def dataset(self) -> Dataset:
        """The samples as they are stored, their number, and the classes: ``loader.dataset[id]``."""
        return Dataset(self, self._chosen)

    @property
    def classes(self) -> list[str]:
        """Class names by label, as in torchvision's ``ImageFolder``; empty if the dataset has none."""
        return list(self._core.classes())

    @property
    def category_ids(self) -> list[int]:
        """The number that the dataset itself uses for each class, such as the category ids that
        COCO's evaluation needs: ``category_ids[k]`` belongs to class k. Empty if the dataset has no
        such numbers."""
        return list(self._core.category_ids())

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Label of each class, as in torchvision's ``ImageFolder``."""
        return {name: label for label, name in enumerate(self.classes)}

    def sample(self, id: int) -> dict[str, Any]:
        """Returns the sample with the index ``id``, as in ``batch.ids``, without augmentation.

        The dict has ``id``, ``key``, ``label`` (None if the sample has none) and ``image``: all pixels
        of the upright image as uint8, as a torch tensor (3, height, width), or, without
        ``output="torch"``, as a NumPy array (height, width, 3). Other stored fields have the names
        under which they are stored: ``x.npy`` is an array, ``x.json`` its values, ``x.txt`` a
        string, and anything else bytes.

        Raises:
            ConfigError: if the dataset has no sample with this index.
            WarpfeedError: if the sample cannot be read or its image cannot be decoded.
        """
        id = _options.number("id", id)
        key, label, image, fields = self._core.sample(id)
        sample: dict[str, Any] = {"id": id, "key": key, "label": label}
        if image is not None:
            sample["image"] = self._delivery.stored_image(*image[1:])
        sample.update((name, decoded(name, content)) for name, content in fields)
        return sample

    def _labels(self, ids: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
        import numpy as np

        return np.frombuffer(self._core.labels(ids), np.int64).copy()

    def part(self, id: int) -> int:
        """Returns the position, within the mixture, of the dataset that contains the sample
        ``id``."""
        return int(self._core.part(_options.number("id", id)))

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
        """Current number of batches that are prepared in advance."""
        return int(self._core.settings()[1])

    def samples_of_rank(self) -> int:
        """Approximate number of samples of this rank in the next epoch."""
        return int(-(-self._core.epoch_len(self.epoch) // self.world_size))

    def close(self) -> None:
        """Ends all threads. Batches that have been delivered stay valid.

        The loader is also closed when its last reference is dropped, and when the process exits.
        """
        try:
            self._core.close()
        finally:
            if self._image_transform is not None:
                self._image_transform.end()
            _log_messages()

    def _ends(self) -> bool:
        """Starts to close the loader. Returns whether its threads have ended."""
        return bool(self._core.ends())

    def _called(self) -> list[str]:
        """Returns the names of the user's callbacks that are running."""
        return list(self._core.called())

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles the arguments and the position. Unpickling opens a loader at this position.

        The new loader has the same next epoch and the same :meth:`state_dict`. Attributes of a
        subclass are preserved.

        Raises:
            TypeError: for a loader with ``trace``, because two loaders would write to the same
                file.
        """
        if "trace" in self._arguments:
            raise TypeError(
                f"trace={self._arguments['trace']!r}: a loader with a trace cannot be pickled, because two loaders "
                "would write the same file"
            )
        state = self.state_dict()
        position = state if (state["epoch"], state["batch"]) != (0, 0) else None
        attributes = {name: value for name, value in vars(self).items() if name not in self._own}
        return _reopen, (type(self), self._arguments, self.epoch, position), attributes or None

    def __repr__(self) -> str:
        return self._written(repr)

    def _written(self, shown: Callable[[Any], str]) -> str:
        """Returns the call that creates this loader, with the options that differ from their
        defaults."""
        named = [f"{name}={shown(value)}" for name, value in self._arguments.items() if name != "data"]
        return f"{type(self).__name__}({', '.join([shown(self._arguments['data']), *named])})"

    def _made(self, native: Any) -> Any:
        """Converts a native batch to the form that the user receives."""
        names, facts = native.fields(), facts_of(native)
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
                    # Store a copy without the frames and the context, because these reference this
                    # batch.
                    absent[name] = copy_of(e)
            if "image" not in names and self._may_lack_images:
                absent["image"] = KeyError(
                    "image: the dataset has no images; table=TableOptions(image=...) names a column of paths"
                )
        if isinstance(fields, dict):
            fields.update(texts)
        if self._views and isinstance(fields, dict):
            fields = {"views": [fields.pop(name) for name in self._views], **fields}
        if self._batch_transform:
            fields = self._batch_transform(fields, self._seed, self.rank, facts)
        if self._collate is not None:
            named = fields if isinstance(fields, dict) else dict(zip(("image", "label"), fields, strict=True))
            return self._collate(Collated(named, facts, absent, self._delivery, self._field_types))
        if isinstance(fields, tuple):
            return Batch(fields, facts, self._delivery)
        return FieldBatch(fields, facts, absent, self._delivery)

    def _field(self, native: Any, name: str) -> Any:
        return self._delivery.field(native, name, name in self._image_fields)


class _Epoch:
    """An iterator over one epoch."""

    def __init__(self, loader: Loader, at: tuple[int, int] | None = None) -> None:
        self._loader: Loader | None = loader
        self._turn: int | None = None
        self._batches = 0
        self._at = at
        # Threads that share an iterator wait until one of them has begun the epoch. The lock is reentrant,
        # because a signal handler may run on that thread.
        self._lock = threading.RLock()
        self._begins = False

    def __iter__(self) -> _Epoch:
        return self

    def __next__(self) -> Any:
        loader = self._loader
        if loader is None:
            raise StopIteration
        if self._turn is None:
            with self._lock:
                if self._turn is None:
                    self._turn, self._batches = self._begun(loader)
        try:
            native = loader._core.next(self._turn)
        finally:
            _log_messages()
        if native is None:
            self._loader = None
            raise StopIteration
        return loader._made(native)

    def _begun(self, loader: Loader) -> tuple[int, int]:
        if self._begins:
            raise ConfigError(
                "this iterator is beginning its epoch on this thread; a signal handler or a sampler that runs at the "
                "same time may call next(iter(loader))"
            )
        self._begins = True
        try:
            return loader._begin(self._at)
        finally:
            self._begins = False

    def __len__(self) -> int:
        """Number of batches of this iterator, including delivered ones."""
        loader = self._loader
        return self._batches if self._turn is not None or loader is None else int(loader._core.coming(self._at))

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("an iterator cannot be pickled; pickle the loader, or its state_dict()")

    def __del__(self) -> None:
        # End the epoch, in case the user left it early.
        loader, turn = self.__dict__.get("_loader"), self.__dict__.get("_turn")
        if loader is not None and turn is not None:
            loader._core.end(turn)


def _reopen(
    cls: type[Loader], arguments: dict[str, Any], epoch: int, position: Mapping[str, Any] | None = None
) -> Loader:
    # A subclass may have different arguments. Pickle restores its attributes afterwards.
    loader = cls.__new__(cls)
    Loader.__init__(loader, **arguments, resume=position)
    loader.set_epoch(epoch)
    return loader


#: Options that Python handles, or passes to the native part under other names.
_PYTHON_OPTIONS = (
    *_delivery.OPTIONS, "image_transform", "processes", "batch_transform", "collate", "shuffle", "seed", "drop_last",
    "last_batch", "rank", "world_size", "distributed",
)  # fmt: skip
