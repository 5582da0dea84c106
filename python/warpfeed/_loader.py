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

from . import _delivery, _options, _ranks, _warpfeed
from ._augment import Augment
from ._batch import Batch, Collated, FieldBatch, facts_of
from ._buckets import Buckets
from ._closing import close_at_exit
from ._error import ConfigError, WarpfeedError
from ._fields import Image, Map, Text, TokenIds, check_images, check_none_follows
from ._function import Function
from ._given import mixture
from ._numbers import Chosen
from ._report import Report, Stats
from ._sources import TableOptions, Tokens, names_url
from ._trainers import BatchSampler, Dataset, Sampler, Skipped, decoded
from ._transforms import Collate, Fields, Transforms
from ._types import Device, Dtype, Normalize, Trace

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Loader"]

_log = logging.getLogger("warpfeed")
_warpfeed.start_log()

#: Writes values without the many numbers of a long list.
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
            # A handler's error must not lose the batch that has just come. It is printed, as
            # `logging` prints those that it catches.
            if logging.raiseExceptions and sys.stderr is not None:
                traceback.print_exc()


class Loader:
    """A loader of batches: ``for images, labels in loader``.

    The loader is open from the start: its threads wait, and all batch memory is allocated. Every
    loop is the next epoch, unless :meth:`set_epoch` was called.

    Args:
        data: the path or URL of a dataset: a folder of class folders, a flat folder, an LMDB, tar shards
            or a pattern such as ``train-{000..099}.tar``, Parquet or Arrow files (Hugging Face), MDS shards,
            LitData's chunks, FFCV's ``.beton``, RecordIO, TFRecord, arrays (NumPy, safetensors, PyTorch,
            HDF5), a table (CSV, TSV, JSON lines), or a COCO, YOLO or Pascal VOC set. Or :class:`Coco`, :class:`Yolo`, :class:`Voc`, :class:`Tokens` or
            :class:`Concat`; an object with ``__len__`` and ``__getitem__`` that returns an image,
            ``(image, label)`` or a ``dict`` of fields, where an image is ``bytes``, a path, an array or
            a tensor of pixels, or an image of Pillow; or a mixture, ``[(data, share), ...]``. Files,
            bytes and images of Pillow are turned upright by their EXIF orientation; arrays and tensors have none.
        batch_size: number of samples in a batch of this rank; 32 by default.
        shuffle: True for the seed ``seed``, or the seed itself, from 1. ``shuffle=0`` is an error,
            because it could mean False or seed 0.
        augment: the augmentation of each image; ``Augment.eval(256, 224)`` by default.
        views: augmentations of several views of each image, in place of the image: the batch is a
            dict whose ``views`` is a list of tensors, one for each augmentation with its size. Each
            view draws random numbers of its own. :meth:`Augment.simclr_views` and
            :meth:`Augment.dino_views` return such lists.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, a number or a ``torch.device``. Batches on a
            device are ordered on torch's current stream.
        dtype: element type of the images: ``"u8"``, ``"f16"``, ``"bf16"``, ``"f32"``, or torch's or
            NumPy's name; by default ``"f32"`` with ``normalize``, otherwise ``"u8"``.
        normalize: ``"imagenet"`` or ``(mean, std)`` on a scale of 0 to 1. Without it floats are
            ``pixel / 255``. Numbers on a scale of 0 to 255 are an error.
        channels: 1 gives images of one channel, (N, 1, H, W): the brightness of the finished image, in
            host memory only. :class:`Map` reads images of 16 bits, of floats and of other channels.
        background: the color behind transparent pixels, such as ``(255, 255, 255)``. By default
            alpha is dropped.
        convert_to_u8: converts images of 16 bits and of floats to 8 bits: the upper byte, and 0 to 1.
            Without it such an image is an error of its sample.
        layout: ``"channels_last"`` is (N, 3, H, W) over NHWC memory, the default for torch;
            ``"nhwc"`` is (N, H, W, 3), the default otherwise; ``"nchw"`` is contiguous.
        output: ``"torch"``, ``"numpy"`` or ``"dlpack"``; by default torch if it is installed,
            otherwise NumPy.
        transform: a function ``f(image, rng)`` on each image after ``augment``: a NumPy array (H, W, 3)
            of uint8 and a ``numpy.random.Generator``, which depends only on (seed, epoch, sample).
            It returns an array of the same shape. Where ``augment`` fills the rest of the image, as
            ``own_size`` and ``letterbox`` do, ``f`` gets the image without the fill. It runs in worker
            processes that are started with the method "spawn", so it must be picklable; pixels are
            shared, not pickled. A pipeline of albumentations is such a function.
        processes: number of processes for ``transform``; by default one per core, and at most
            ``num_workers``. With 0 the worker
            threads call the function, which needs the interpreter's lock; this is the default where
            the interpreter has no lock.
        transform_moves_pixels: False says that ``transform`` leaves each pixel in its place, as a
            change of colors does. Fields that follow the image, such as masks and boxes, do not
            follow ``transform``, so a loader with both needs it.
        transforms: functions on whole batches, called in turn: ``f(images, labels)``, or
            ``f(fields)`` if the batch is a dict. Each returns a pair ``(images, labels)`` or a
            dict; anything else is an error. A function may have the keyword-only parameters
            ``epoch``, ``number`` (of the batch in its epoch) and ``seed``: ``def f(images, labels,
            *, seed)``. ``seed`` differs for each batch and rank, and is the same after a resume. An
            exception is a :class:`WarpfeedError` that names the batch, with the exception as its
            cause.
        collate: a function ``f(batch)`` whose result is what the loop receives. ``batch`` is a dict of
            all fields, ``image`` and ``label`` too, with ``epoch``, ``number``, ``ids``, ``valid``
            and the other facts of a batch. It is called after ``transforms``. An exception becomes
            an error as for ``transforms``. :mod:`warpfeed.collate` has ready functions.
        copy: True copies every tensor, False none. By default it copies fields up to 64 KiB
            per batch, and a whole batch if no other slot is left.
        drop_last: True is ``last_batch="drop"``, as in torch.
        last_batch: treatment of an incomplete last batch: ``"keep"`` (the default), ``"drop"`` or
            ``"pad"``.
        global_batch_size: number of samples in a batch of all ranks together; replaces
            ``batch_size``.
        seed: seed of the shuffle and of all augmentation.
        shuffle_window: shuffles within windows of about this many samples.
        subset: indices of the samples to deliver. ``loader.dataset`` then has these samples. A sample
            whose index comes again is delivered again, and augmented differently. For many samples
            pass an array. Samples keep their numbers: ``batch.ids``, ``order``, ``weights``,
            ``buckets`` and ``loader.dataset[id]`` count in the whole dataset.
        buckets: lengths of the samples: puts samples of similar lengths into the same batches. See
            :class:`Buckets`.
        weights: weight of each sample of the dataset, also with a ``subset``, which restricts the
            draws; samples are drawn with replacement. For many samples pass an array.
        balanced: draws all classes equally often.
        order: a function that returns the indices of an epoch's samples in their order, as in
            ``batch.ids``. An index outside of ``subset`` is an error. A sample
            whose index comes again is delivered again, and augmented differently. The function is called
            when its epoch begins, so it may depend on state that the program changes between
            epochs, such as a curriculum or losses. ``len`` and ``state_dict`` may call it, too. With
            ``epochs`` it is called while the epoch before is in progress, and then must return the
            same indices every time it is called for the same epoch. An exception becomes an error as
            for ``transforms``.
        repeat: number of passes in an epoch.
        match_labels_by_name: gives one label to each class name of a mixture.
        keep_labels: keeps the labels of a mixture as they are, whatever the names say.
        classes: names of the classes. The position of a name is its label, whatever numbers
            the dataset has.
        classes_file: a file with the names of the classes: one name per line, or a JSON list.
        table: meaning of a table's columns; an error for a dataset without columns.
        masks: the folder with the masks of a folder of images, next to it: for ``"CamVid/train"``,
            ``masks="trainannot"`` is ``CamVid/trainannot``. The mask of ``a/1.jpg`` is ``a/1.png`` there, or
            ``.npy``, ``.tif``, ``.gif``, ``.bmp`` or ``.webp``, and becomes the field ``mask`` for
            :class:`Mask`. A ``*`` in the last part stands for the name of an image: ``"masks/*_mask"``.
        index: keeps the listing of a folder of this machine in the file ``<folder>.warpfeed-index`` next to
            it; an error for other datasets.
        fields: more fields by name: ``{"emb": Numbers("f32", [768]), "boxes": Boxes(100)}``.
        annotations_follow: the image on which boxes, masks and points were drawn, if EXIF turns
            it and the sizes are ambiguous: ``"stored"``, the pixels as the file stores them, or
            ``"upright"``. Without it such a sample is an error.
        without: fields to leave out: ``["label"]``.
        soft_labels: ``(classes, smoothing)`` adds the field ``soft_label``, (N, classes) f32, and
            the batch is a dict. ``classes`` is the number of classes. The smoothing alone, such as
            ``0.1``, takes this number from the dataset, which must have names of classes, as
            class folders do. Mixing (:class:`Mix`) needs this option.
        unlabeled: reads missing labels as -1. Without it, a batch with more fields has no
            ``label`` if no sample has a label.
        rank: rank of this process; needs ``world_size``.
        world_size: number of ranks.
        distributed: True takes the rank from ``torch.distributed`` or from the launcher's
            environment. False gives all samples to every rank. With several ranks, opening the
            loader without one of these is an error. If ``torch.distributed`` is initialized later,
            the request for the first batch raises this error.
        num_workers: number of worker threads; 0 is one per core. The ranks of a machine share its
            cores.
        prefetch: number of batches ahead; 0 chooses it while running.
        epochs: number of epochs that the program takes. While an epoch ends, the loader prepares
            the first batches of the next one; after the last of ``epochs`` it prepares nothing.
            Later epochs can still be requested. With 0 each epoch begins on request. That is the
            default with ``order``; otherwise the number is not limited.
        decode_on: ``"cpu"``, ``"gpu"`` or ``"auto"``: where JPEGs of batches on a device are
            decoded, to the same bits. ``"auto"`` uses the device while the threads alone are too
            slow, and is fast on packed files. Batches in host memory ignore it.
        decode_share: maximum share of the device's time for decoding, from 0 to 1.
        pin_memory: page-locks host memory.
        mmap: maps tar shards into memory instead of reading them.
        cache_bytes: bytes that a folder on this machine may take to keep what is read from URLs.
            Without it nothing is kept. It is an error for a dataset of this machine.
        cache_dir: that folder; ``$XDG_CACHE_HOME/warpfeed/blocks`` by default. It is created, and
            must have no other files. All processes of a machine may share it.
        cache_refresh: lists stores again instead of using the listings in the cache, which lack
            objects that were added.
        max_skipped: number of bad samples that may be skipped. Without it the first bad sample is
            an error.
        strict: makes damage inside a JPEG an error of its sample; libjpeg only warns of it. Each
            file is then read to its end, which takes time. Without ``strict``,
            ``stats()["damaged"]`` counts how often decoding found damage, once in each epoch for a
            damaged image, and the log names each image once.
        retries: number of times that a failed read is repeated; 3 by default.
        timeout: seconds that ``next`` waits while the program holds every batch; 30 by default.
        memory_limit: bytes that the memory plan may take.
        max_pixels: largest image that is decoded, in pixels; 2**28 by default.
        max_sample_bytes: largest sample that is read, in bytes; 2**31 by default.
        trace: a path, or ``(path, (wait, warmup, active, repeat))``, for a trace in Perfetto's
            format. The file is complete after each window, and when the loader is closed.
        resume: a state of :meth:`state_dict`.

    Raises:
        ConfigError: for an option that cannot work; it is also a ``ValueError``.
        WarpfeedError: if the dataset cannot be opened. A missing path is also a
            ``FileNotFoundError``.
        TypeError: for an argument that does not exist, or has the wrong type.
    """

    def __init__(
        self,
        data: Any,
        *,
        batch_size: int | None = None,
        shuffle: bool | int = False,
        augment: Augment | None = None,
        views: Sequence[Augment] | None = None,
        device: Device | None = None,
        dtype: Dtype | None = None,
        normalize: Normalize | None = None,
        channels: int | None = None,
        background: tuple[int, int, int] | None = None,
        convert_to_u8: bool = False,
        layout: Any = None,
        output: Literal["torch", "numpy", "dlpack"] | None = None,
        transform: Callable[..., Any] | None = None,
        processes: int | None = None,
        transform_moves_pixels: bool | None = None,
        transforms: Transform | Sequence[Transform] = (),
        collate: Callable[[Any], Any] | None = None,
        copy: bool | None = None,
        drop_last: bool | None = None,
        last_batch: Literal["keep", "drop", "pad"] | None = None,
        global_batch_size: int | None = None,
        seed: int | None = None,
        shuffle_window: int | None = None,
        subset: Iterable[int] | None = None,
        buckets: Buckets | None = None,
        weights: Iterable[float] | None = None,
        balanced: bool = False,
        order: Callable[[int], Iterable[int]] | None = None,
        repeat: int | None = None,
        match_labels_by_name: bool = False,
        keep_labels: bool = False,
        classes: Sequence[str] | None = None,
        classes_file: _options.Path | None = None,
        table: TableOptions | None = None,
        masks: _options.Path | None = None,
        index: bool = False,
        fields: Mapping[str, Any] | None = None,
        annotations_follow: Literal["stored", "upright"] | None = None,
        without: str | Sequence[str] = (),
        soft_labels: tuple[int, float] | float | None = None,
        unlabeled: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        distributed: bool | None = None,
        num_workers: int = 0,
        prefetch: int = 0,
        epochs: int | None = None,
        decode_on: Literal["cpu", "gpu", "auto"] = "cpu",
        decode_share: float = 1.0,
        pin_memory: bool = False,
        mmap: bool = True,
        cache_dir: _options.Path | None = None,
        cache_bytes: int | None = None,
        cache_refresh: bool = False,
        max_skipped: int | None = None,
        strict: bool = False,
        retries: int | None = None,
        timeout: float | None = None,
        memory_limit: int | None = None,
        max_pixels: int | None = None,
        max_sample_bytes: int | None = None,
        trace: Trace | None = None,
        resume: Mapping[str, Any] | None = None,
        **unknown: NoReturn,
    ) -> None:
        if augment is not None and not isinstance(augment, Augment):
            raise TypeError(f"augment={augment!r}: want warpfeed.Augment; {_options.PER_SAMPLE}")
        listed = isinstance(views, (list, tuple)) and len(views) > 0 and all(isinstance(view, Augment) for view in views)
        if views is not None and not listed:
            raise TypeError(f"views={views!r}: want a list of warpfeed.Augment")
        if views is not None and "views" in (fields or {}):
            raise ConfigError("a field called 'views' would replace the views in the batch: give it another name")
        if views is not None and augment is not None and not any(isinstance(k, Image) for k in (fields or {}).values()):
            raise ConfigError("augment and views: views replace the image; leave augment out, or add fields={'image': Image()}")
        if isinstance(data, Tokens):
            # They have no images and no labels.
            fields = {"tokens": TokenIds(data.length)} if fields is None else fields
            names = [without] if isinstance(without, str) else without
            without = [*names, *(name for name in ("image", "label") if name not in names and name not in fields)]
        given, defaults = _options.given(Loader.__init__, locals(), unknown), Loader.__init__.__kwdefaults__ or {}
        _options.exclusive(
            given, ("batch_size", "global_batch_size"), ("classes", "classes_file"), ("drop_last", "last_batch")
        )
        if isinstance(data, (list, tuple)):
            data = mixture(data)
        # A table of this machine may name files in a store.
        if (cache_bytes is not None or cache_refresh) and table is None and not names_url(data):
            option = "cache_refresh" if cache_bytes is None else "cache_bytes"
            raise ConfigError(
                f"{option}: the cache keeps what is read from URLs, and this dataset is on this machine: leave it out"
            )
        for option, draws in (("weights", weights is not None), ("balanced", balanced)):
            if shuffle and draws:
                raise ConfigError(
                    f"shuffle={shuffle!r} and {option}: the draws are random already. Leave shuffle out, and pass "
                    "their seed as seed=s"
                )
        # Attributes that a subclass has set already are its own.
        foreign = set(vars(self))
        # Arguments that open the same loader in another process.
        changed = {name: value for name, value in given.items() if value is not defaults[name] and name != "resume"}
        self._arguments = {"data": data, **changed}

        self._delivery = delivery = _delivery.Delivery(output, device, layout, copy)
        shuffled, self._seed = _options.shuffling(shuffle, seed)
        options = {
            "data": data,
            **_options.native(given, without=_PYTHONS),
            **_ranks.options(rank, world_size, distributed),
            "shuffle" if shuffled else "seed": self._seed,
            "last_batch": last_batch or ("drop" if drop_last else "keep"),
            "layout": delivery.layout,
        }
        check_images(given, defaults, fields or {}, options["without"], views)
        # The program may change its own lists later, and a pickled loader has the same order.
        self._arguments.update((name, options[name].values) for name in ("subset", "weights") if name in options)
        maps = {name: kind for name, kind in (fields or {}).items() if isinstance(kind, Map)}
        if maps:
            laid_out = {name: kind._laid_out(delivery.layout) for name, kind in maps.items()}
            options["fields"] = {**options["fields"], **laid_out}
            # The native part refuses a layout of images where there are none.
            of_images = views or any(isinstance(kind, Image) for kind in (fields or {}).values())
            if not of_images and ("image" in maps or "image" in options["without"]):
                del options["layout"]
        #: Number of samples in a batch of this rank, as given.
        self.batch_size = 32 if batch_size is None and global_batch_size is None else batch_size
        #: Whether a last batch that is not full is dropped.
        self.drop_last = options["last_batch"] == "drop"
        #: Whether host memory is page-locked.
        self.pin_memory = bool(pin_memory)
        #: The number of the CUDA device; None for host memory.
        self.device = delivery.device
        #: For trainers that call ``loader.sampler.set_epoch``.
        self.sampler = Sampler(self)
        #: Lightning reads it when it validates. It cannot be iterated.
        self.batch_sampler = BatchSampler()
        self._transforms = Transforms(transforms)
        self._collate = None if collate is None else Collate(collate)
        self._kinds = dict(fields or {})
        self._views = [f"views.{n}" for n in range(len(views or ()))]
        images = {name for name, kind in (fields or {}).items() if isinstance(kind, Image)}
        # Maps have the layout of the images.
        self._images = {"image", *self._views, *images, *maps}
        # Labels that the program did not ask for may be missing in a batch with more fields.
        self._wants_label = unlabeled or soft_labels is not None or "label" in (fields or {})
        # A dataset without images has no images, unless they are left out anyway.
        self._spares_image = not views and "image" not in ([without] if isinstance(without, str) else without)
        # Whether the run was compared with that of another rank.
        self._compared = False
        # Whether this process has a given share of the samples, has asked for one, or neither.
        self._share = "given" if rank is not None or distributed is False else "asked" if distributed else None
        if processes is not None and transform is None:
            raise ConfigError(f"processes={processes}: they run transform=f, which is not given")
        if transform_moves_pixels is not None and transform is None:
            raise ConfigError(f"transform_moves_pixels={transform_moves_pixels}: it describes transform=f, which is not given")
        if transform is not None and transform_moves_pixels is not False:
            check_none_follows(fields or {}, transform_moves_pixels)
        self._function = None if transform is None else Function(transform, processes, num_workers)
        if self._function is not None:
            options["transform"] = self._function.native
        try:
            self._core = _warpfeed.Core(options, delivery.native())
        except BaseException:
            if self._function is not None:
                self._function.end()
            raise
        finally:
            # Warnings come before the error that they explain.
            _log_messages()
        close_at_exit(self)
        # A pair of an image and a label needs both.
        left_out = set(options.get("without", ()))
        pair = not views and not left_out and set(fields or ()) <= {"image", "label"}
        if (pair or self._wants_label) and not unlabeled and "label" not in left_out and self._core.lacks_labels():
            self.close()
            raise ConfigError(
                f"{data}: images in one folder have no labels; pass unlabeled=True to read them as -1, or "
                "without=['label'] to leave them out"
            )
        self._chosen = Chosen(options["subset"].values if "subset" in options else None, self._core.source_len())
        self._own = frozenset(vars(self)) - foreign

    def __iter__(self) -> Iterator[Any]:
        """Returns an iterator over the next epoch.

        A bad sample is the error of its batch. A program that catches it and goes on with ``next``
        receives the batch after it. :meth:`state_dict` stays at the bad batch until then.

        The epoch begins when its first batch is requested. Until then :meth:`set_epoch` may change
        it, and an iterator that is never used takes no epoch. Beginning an epoch ends the one
        before. While it ends, the first batches of the next epoch are prepared; if another one is
        requested, they are dropped.
        """
        return _Epoch(self)

    def epoch_from(self, epoch: int, first: int) -> Iterator[Any]:
        """Returns an iterator over epoch ``epoch`` from batch ``first`` on, at no extra cost.

        The next ``iter`` is the epoch after it.
        """
        return _Epoch(self, (_options.number("epoch", epoch), _options.number("first", first)))

    def skip_first_batches(self, num_batches: int) -> Skipped:
        """Returns the rest of the next epoch after its first ``num_batches``, as accelerate's function
        of this name does. The skipped batches cost nothing.

        The epoch is :attr:`epoch` at the time of ``iter``: a resumed program calls :meth:`set_epoch`
        first, because the order of an epoch depends on its number.
        """
        return Skipped(self, _options.number("num_batches", num_batches))

    def replay(self, n: int) -> Iterator[Any]:
        """Repeats the first ``n`` batches of epoch 0 endlessly.

        This measures the speed of a training step without a loader. The batches do not count in the
        statistics, and the step must not write to them. The current epoch ends.

        Raises:
            WarpfeedError: if ``n`` is 0, or more than ``prefetch`` + 1 (3 if that is automatic).
        """
        self._check_world()
        batches = self._core.replay(_options.number("n", n))
        _log_messages()
        return map(self._made, itertools.cycle(batches))

    def _begin(self, at: tuple[int, int] | None) -> tuple[int, int]:
        """Begins the next epoch, or starts at ``at`` (epoch, batch). Returns its turn and the number
        of its batches."""
        self._check_world()
        if self._share == "asked" and self.world_size > 1 and not self._compared:
            self._compared = True
            self._check_same(self.epoch if at is None else at[0])
        return self._core.begin(at)

    def _check_same(self, epoch: int) -> None:
        """Raises an error if another rank begins with other samples or at another place."""
        data, state = self._arguments["data"], self.state_dict()
        name = os.path.basename(os.fspath(data)) if isinstance(data, (str, os.PathLike)) else type(data).__name__
        run = {what: state[what] for what in ("seed", "global_batch", "samples", "epoch_samples", "order", "probes", "batch")}
        _ranks.check_same(name, self.rank, self.world_size, {**run, "epoch": epoch})

    def _check_world(self) -> None:
        """Raises an error if this rank is one of several, and its share is not given."""
        if self._share != "given":
            _ranks.check_world(self.rank, self.world_size, None if self._share is None else True)

    def __len__(self) -> int:
        """Number of batches of the next epoch, on this rank."""
        return int(self._core.num_batches(self.epoch))

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next ``iter``.

        After :meth:`load_state_dict`, the epoch of the state begins at the saved batch, and earlier
        epochs are empty.
        """
        self._core.set_epoch(_options.number("epoch", epoch))

    @property
    def epoch(self) -> int:
        """The epoch of the next ``iter``."""
        return int(self._core.epoch())

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the run, exact to the last delivered batch.

        The dict consists of numbers and texts, so JSON and ``torch.load(weights_only=True)`` take
        it. It is the same on every rank that has received as many batches.
        """
        state: dict[str, Any] = json.loads(self._core.checkpoint())
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state`` with the next ``iter``. Workers and ranks may differ.

        Raises:
            WarpfeedError: if the seed, the global batch, the order or the dataset differs.
        """
        self._core.resume(_options.state_text(state, "state"))

    def _position_of(self, state: Mapping[str, Any]) -> tuple[int, int]:
        """The epoch and the batch at which a run continues from ``state``. This loader stays where it is.

        Raises:
            WarpfeedError: as :meth:`load_state_dict`.
        """
        self._core.check(_options.state_text(state, "state"))
        epoch, batch = int(state["epoch"]), int(state["batch"])
        return (epoch + 1, 0) if batch > 0 and batch == self._core.num_batches(epoch) else (epoch, batch)

    def stats(self) -> Stats:
        """Returns the statistics so far: a dict, which prints as a table.

        :class:`Stats` says what is in it: batches, samples and seconds, the waits for batches, the
        time of each stage of the workers, memory, damage and retries. ``stats().flat()`` has the
        numbers alone, for a tracker of experiments.
        """
        stats = Stats(*self._core.stats())
        stats["options"] = self._written(_brief.repr)
        return stats

    def device_stats(self) -> dict[str, int] | None:
        """Returns bytes of device memory in use and bytes copied; None without a device."""
        stats = self._core.device_stats()
        return None if stats is None else dict(json.loads(stats))

    def verdict(self) -> Report:
        """Returns what limits the loader, and what helps: a dict, which prints as text."""
        return Report(*self._core.verdict())

    def transform_cost(self) -> dict[str, float]:
        """Returns what ``transform`` costs: the number of ``calls``, and seconds of all of them
        ``in_function``, for the ``transfer`` to a process and back, and ``waiting_for_a_process``.

        Closing the loader logs the same.
        """
        return {} if self._function is None else self._function.cost()

    def memory_plan(self) -> Report:
        """Returns the memory of the loader in bytes: a dict, which prints as a sentence."""
        return Report(*self._core.memory_plan())

    def faults(self) -> list[tuple[int, int, Exception]]:
        """Returns the skipped samples: epoch, batch and error of each."""
        return list(self._core.faults())

    @property
    def dataset(self) -> Dataset:
        """The samples as they are stored, their number, and the classes: ``loader.dataset[id]``."""
        return Dataset(self, self._chosen)

    @property
    def classes(self) -> list[str]:
        """Names of the classes by label, as in torchvision's ``ImageFolder``; empty if the dataset has
        no names."""
        return list(self._core.classes())

    @property
    def category_ids(self) -> list[int]:
        """The dataset's own number of each class: the category ids of COCO, which its evaluation needs;
        ``category_ids[k]`` belongs to class k. Empty if the dataset has no such numbers."""
        return list(self._core.category_ids())

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Label of each class, as in torchvision's ``ImageFolder``."""
        return {name: label for label, name in enumerate(self.classes)}

    def sample(self, id: int) -> dict[str, Any]:
        """Returns the sample with the number ``id`` of ``batch.ids``, as it is stored.

        The dict has ``id``, ``key``, ``label`` (None if the sample has none) and ``image``: all pixels
        of the upright image, uint8, without augmentation. ``image`` is a torch tensor (3, height,
        width), or a NumPy array (height, width, 3) without ``output="torch"``. Other stored fields have
        their stored names: ``x.npy`` is an array, ``x.json`` its values, ``x.txt`` a text, and
        anything else bytes.

        Raises:
            ConfigError: for a number that the dataset does not have.
            WarpfeedError: if the sample cannot be read or its image cannot be decoded.
        """
        id = _options.number("id", id)
        key, label, image, fields = self._core.sample(id)
        sample: dict[str, Any] = {"id": id, "key": key, "label": label}
        if image is not None:
            sample["image"] = self._delivery.image(*image[1:])
        sample.update((name, decoded(name, content)) for name, content in fields)
        return sample

    def _labels(self, ids: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
        import numpy as np

        return np.frombuffer(self._core.labels(ids), np.int64).copy()

    def part(self, id: int) -> int:
        """Returns the position in the mixture of the dataset that has the sample ``id``."""
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
        """Number of batches ahead at this moment."""
        return int(self._core.settings()[1])

    def samples_of_rank(self) -> int:
        """Approximate number of samples that this rank gets in the next epoch."""
        return int(-(-self._core.epoch_len(self.epoch) // self.world_size))

    def close(self) -> None:
        """Ends all threads. Batches that the program holds stay valid.

        Dropping the last reference closes the loader, and so does the end of the program.
        """
        try:
            self._core.close()
        finally:
            if self._function is not None:
                self._function.end()
            _log_messages()

    def _ends(self) -> bool:
        """Begins to close the loader. Returns whether its threads have ended."""
        return bool(self._core.ends())

    def _called(self) -> list[str]:
        """The functions of the program that are being called."""
        return list(self._core.called())

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles the arguments and the position. Unpickling opens the loader there.

        The new loader has the same next epoch and the same :meth:`state_dict`, and a subclass keeps
        its attributes.

        Raises:
            TypeError: for a loader with ``trace``, because two loaders would write one file.
        """
        if "trace" in self._arguments:
            raise TypeError(
                f"trace={self._arguments['trace']!r}: a loader with a trace cannot be pickled, because two loaders would "
                "write one file"
            )
        state = self.state_dict()
        position = state if (state["epoch"], state["batch"]) != (0, 0) else None
        attributes = {name: value for name, value in vars(self).items() if name not in self._own}
        return _reopen, (type(self), self._arguments, self.epoch, position), attributes or None

    def __repr__(self) -> str:
        return self._written(repr)

    def _written(self, shown: Callable[[Any], str]) -> str:
        """The call that makes this loader, with the options that are not the default."""
        named = [f"{name}={shown(value)}" for name, value in self._arguments.items() if name != "data"]
        return f"{type(self).__name__}({', '.join([shown(self._arguments['data']), *named])})"

    def _made(self, native: Any) -> Any:
        """Converts a native batch for the program."""
        names, facts = native.fields(), facts_of(native)
        texts = {name: native.texts(name) for name, kind in self._kinds.items() if isinstance(kind, Text)}
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
                    if name != "label" or self._wants_label or e.kind != "source":
                        raise
                    # Without its frames and its context, which hold this batch.
                    absent[name] = copy_of(e)
            if "image" not in names and self._spares_image:
                absent["image"] = KeyError(
                    "image: the dataset has no images; table=TableOptions(image=...) names a column of paths"
                )
        if isinstance(fields, dict):
            fields.update(texts)
        if self._views and isinstance(fields, dict):
            fields = {"views": [fields.pop(name) for name in self._views], **fields}
        if self._transforms:
            fields = self._transforms(fields, self._seed, self.rank, facts)
        if self._collate is not None:
            named = fields if isinstance(fields, dict) else dict(zip(("image", "label"), fields, strict=True))
            return self._collate(Collated(named, facts, absent, self._delivery, self._kinds))
        if isinstance(fields, tuple):
            return Batch(fields, facts, self._delivery)
        return FieldBatch(fields, facts, absent, self._delivery)

    def _field(self, native: Any, name: str) -> Any:
        return self._delivery.field(native, name, name in self._images)


class _Epoch:
    """An iterator over one epoch."""

    def __init__(self, loader: Loader, at: tuple[int, int] | None = None) -> None:
        self._loader: Loader | None = loader
        self._turn: int | None = None
        self._batches = 0
        self._at = at
        # Threads that share an iterator wait until one of them has begun the epoch. Code that runs
        # on that thread meanwhile, such as a signal handler, must not wait for it.
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
                "this iterator is beginning its epoch on this thread; a signal handler or an order that runs meanwhile "
                "may call next(iter(loader))"
            )
        self._begins = True
        try:
            return loader._begin(self._at)
        finally:
            self._begins = False

    def __len__(self) -> int:
        """Number of batches of this iterator, those that it has delivered included."""
        loader = self._loader
        return self._batches if self._turn is not None or loader is None else int(loader._core.coming(self._at))

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("an iterator cannot be pickled; pickle the loader, or its state_dict()")

    def __del__(self) -> None:
        # Ends an epoch that the program left early.
        loader, turn = self.__dict__.get("_loader"), self.__dict__.get("_turn")
        if loader is not None and turn is not None:
            loader._core.end(turn)


def _reopen(
    cls: type[Loader], arguments: dict[str, Any], epoch: int, position: Mapping[str, Any] | None = None
) -> Loader:
    # A subclass may have other arguments; its attributes follow.
    loader = cls.__new__(cls)
    Loader.__init__(loader, **arguments, resume=position)
    loader.set_epoch(epoch)
    return loader


#: Options that Python handles, or passes to the native part under other names.
_PYTHONS = (
    *_delivery.OPTIONS, "transform", "processes", "transforms", "collate", "shuffle", "seed", "drop_last", "last_batch", "rank", "world_size", "distributed",
)  # fmt: skip
