"""The loader."""

from __future__ import annotations

import itertools
import json
import logging
import os
import threading
from typing import Any, Callable, Iterator, Mapping, Sequence

from . import _batch, _checks, _options, _warpfeed
from ._augment import Augment
from ._batch import Batch, FieldBatch
from ._closing import close_at_exit
from ._error import ConfigError, WarpfeedError
from ._fields import Image
from ._report import Report, Stats
from ._sources import TableOptions
from ._trainers import Dataset, Sampler
from ._transforms import Fields, Transforms

__all__ = ["Loader"]

_log = logging.getLogger("warpfeed")
_warpfeed.start_log()


def _say() -> None:
    for level, text in _warpfeed.drain_log():
        _log.log(level, "%s", text)


class Loader:
    """A loader of batches: ``for images, labels in loader``.

    It is open from the start: its threads wait, and all batch memory is allocated. Every loop is
    the next epoch, unless :meth:`set_epoch` was called.

    Args:
        data: the path of a folder of class folders, a flat folder, an LMDB, tar shards or a pattern
            such as ``train-{000..099}.tar``, a table (CSV, TSV, JSON lines), or a set of COCO, YOLO
            or Pascal VOC; :class:`Coco`, :class:`Yolo`, :class:`Voc` or :class:`Concat`; an object
            with ``__len__`` and ``__getitem__`` that gives ``bytes``, ``(bytes, label)`` or a
            ``dict``; or a mixture, ``[(data, share), ...]``.
        batch_size: samples in a batch of this rank.
        shuffle: True for the seed ``seed``, or the seed itself, from 1. ``shuffle=0`` is an error,
            since it reads as False and as seed 0.
        augment: what is done to each picture; ``Augment.eval(256, 224)`` by default.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, a number or a ``torch.device``. On a device
            batches are ordered on torch's current stream.
        dtype: of the images: ``"u8"``, ``"f16"``, ``"bf16"``, ``"f32"``, or torch's or NumPy's; by
            default ``"f32"`` with ``normalize``, otherwise ``"u8"``.
        normalize: ``"imagenet"`` or ``(mean, std)`` on a scale of 0 to 1; floats are ``pixel / 255``
            without it. Numbers on a scale of 0 to 255 are an error.
        layout: ``"channels_last"`` is (N, 3, H, W) over NHWC memory, the default for torch;
            ``"nhwc"`` is (N, H, W, 3), the default otherwise; ``"nchw"`` is contiguous.
        output: ``"torch"``, ``"numpy"`` or ``"dlpack"``; torch where it is installed, by default.
        transforms: functions that are called one after the other with the fields of a whole batch:
            ``f(images, labels)``, or ``f(fields)`` where the batch is a dict. Each returns a pair
            ``(images, labels)`` or a dict, which decides on the form of the batch; anything else is
            an error. A function gets those of the keyword-only parameters ``epoch``, ``number`` and
            ``seed`` that it has: ``def f(images, labels, *, seed)``. ``number`` is that of the batch
            in its epoch. ``seed`` differs for each batch and rank, and is the same after a resume.
        copy: True gives every tensor memory of its own, False none. By default fields up to 64 KiB
            a batch are copied, and batches that the loader has no other slot left for.
        drop_last, last_batch: ``"keep"``, ``"drop"`` or ``"pad"``: the last batch of an epoch.
        global_batch_size: samples in a batch of all ranks together, in place of ``batch_size``.
        seed: of the shuffle and all augmentation.
        shuffle_window: shuffles within windows of about so many samples.
        subset: indices of the samples to deliver. weights: chances of the samples, with
            replacement. balanced: equally frequent classes. order: a function that gives the indices
            of an epoch's samples in their order, always the same of the same epoch.
            repeat: passes in an epoch.
        by_class_name, keep_labels: what labels mean in a mixture.
        classes, classes_file: names of the classes, or a file with them (a name a line, or a JSON
            list). The place of a name is its label, whatever the data set numbers.
        table: what the columns of a table mean. index: whether the listing of a folder is kept in
            the file ``<folder>.warpfeed-index`` beside it.
        fields: more fields by name: ``{"emb": Numbers("f32", [768]), "boxes": Boxes(100)}``.
        annotations_follow: the picture that boxes, masks and points were made on where EXIF turns it
            and their size does not tell: ``"stored"``, the pixels as the file stores them, or
            ``"upright"``. Without it such a sample is an error.
        without: fields to leave out: ``["label"]``.
        soft_labels: ``(classes, smoothing)`` adds the field ``soft_label``, rows of shares of
            (N, classes) f32. The batch is then a dict. ``classes`` is the number of classes, such as
            ``len(os.listdir(folder))``. Mixing (:class:`Mix`) needs this option.
        unlabelled: samples without a label get -1. A batch with fields of its own needs it only to
            have ``label`` at all: without it, labels that no sample has are left out.
        rank, world_size: this process's share. distributed: True takes the share from
            ``torch.distributed`` or from the launcher's environment, False gives all samples to every
            rank. With several ranks one of them must be said: otherwise opening the loader is an
            error, or its first batch, if ``torch.distributed`` is initialised in between.
        num_workers, workers: threads; 0 is one a core. The ranks of a machine share its cores.
        prefetch: batches ahead; 0 is found.
        decode_on: ``"cpu"``, ``"gpu"`` or ``"auto"``: where JPEGs of batches on a device are decoded,
            to the same bits. ``"auto"`` takes the device while the threads alone are too slow; it
            is fast on packed files. Batches in host memory ignore it. decode_share: the most of the
            device's time that this may take, from 0 to 1.
        pin_memory, pinned: page-locked host memory. mmap: whether tar shards are mapped.
        on_error: ``"stop"`` or ``"skip"``; with the latter ``max_skipped`` samples at most.
        strict: whether damage inside a JPEG, which libjpeg passes over with a warning, is an error of
            its sample. All of each file is then read, whatever the crop needs, which takes time.
            Otherwise ``stats()["damaged"]`` counts the pictures in which decoding met damage, and
            the log names them.
        timeout: seconds that ``next`` waits while the program itself holds every batch; then it is an
            error. 30 by default.
        retries, memory_limit, max_pixels, max_sample_bytes: as in Rust.
        trace: a path, or ``(path, (wait, warmup, active, repeat))``, for Perfetto. The file is
            complete after each window, and when the loader is closed.
        resume: what :meth:`state_dict` gave.

    Raises:
        ConfigError: for an option that cannot work; it is a ``ValueError`` too.
        WarpfeedError: if the data set cannot be opened. A missing path is also a
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
        device: Any = None,
        dtype: Any = None,
        normalize: Any = None,
        layout: Any = None,
        output: str | None = None,
        transforms: Callable[..., Any] | Sequence[Callable[..., Any]] = (),
        copy: bool | None = None,
        drop_last: bool | None = None,
        last_batch: str | None = None,
        global_batch_size: int | None = None,
        seed: int | None = None,
        shuffle_window: int | None = None,
        subset: Sequence[int] | None = None,
        weights: Sequence[float] | None = None,
        balanced: bool = False,
        order: Callable[[int], Sequence[int]] | None = None,
        repeat: int | None = None,
        by_class_name: bool = False,
        keep_labels: bool = False,
        classes: Sequence[str] | None = None,
        classes_file: _options.Path | None = None,
        table: TableOptions | None = None,
        index: bool = False,
        fields: Mapping[str, Any] | None = None,
        annotations_follow: str | None = None,
        without: Sequence[str] = (),
        soft_labels: tuple[int, float] | None = None,
        unlabelled: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        distributed: bool | None = None,
        num_workers: int | None = None,
        workers: int | None = None,
        prefetch: int = 0,
        decode_on: str = "cpu",
        decode_share: float = 1.0,
        pin_memory: bool | None = None,
        pinned: bool | None = None,
        mmap: bool = True,
        on_error: str = "stop",
        max_skipped: int | None = None,
        strict: bool = False,
        retries: int | None = None,
        timeout: float | None = None,
        memory_limit: int | None = None,
        max_pixels: int | None = None,
        max_sample_bytes: int | None = None,
        trace: Any = None,
        resume: Mapping[str, Any] | None = None,
        **unknown: Any,
    ) -> None:
        given = locals()
        defaults = Loader.__init__.__kwdefaults__ or {}
        _options.refuse(unknown, defaults)
        _checks.check(given, [name for name, default in defaults.items() if default is None])
        # Attributes that a subclass has set already are its own.
        foreign = set(vars(self))
        # What opens the same loader in another process.
        self._arguments = {
            name: given[name]
            for name in ("data", *defaults)
            if name != "resume" and given[name] is not defaults.get(name, given)
        }
        if batch_size is not None and global_batch_size is not None:
            raise ConfigError("batch_size and global_batch_size: each decides on the size; set one of them")
        if fields is not None and not isinstance(fields, Mapping):
            raise TypeError(f"fields={fields!r}: want a dict of kinds by name, such as {{'boxes': Boxes(100)}}")
        for name, kind in (fields or {}).items():
            if not hasattr(kind, "_describe"):
                raise TypeError(
                    f"fields: {name!r} is {kind!r}; want warpfeed.Numbers(...), Rows, Mask, Boxes or another kind of "
                    "field"
                )
        if table is not None and not isinstance(table, TableOptions):
            raise TypeError(f"table={table!r}: want warpfeed.TableOptions")
        if classes is not None and classes_file is not None:
            raise ConfigError("classes and classes_file: each is the list of classes; set one of them")
        if (drop_last is not None) and last_batch is not None:
            raise ConfigError("drop_last and last_batch: each decides on the last batch; set one of them")
        if on_error not in ("stop", "skip"):
            raise ConfigError(f"on_error={on_error!r}: known are 'stop' and 'skip'")
        if (on_error == "skip") != (max_skipped is not None):
            raise ConfigError(
                "on_error='skip' and max_skipped=n go together: how many samples may be skipped before it is an error"
            )
        output, ordinal, layout = _options.delivery(output, device, layout)
        if isinstance(data, (list, tuple)) and not (data and all(_is_part(part) for part in data)):
            raise TypeError("a list is a mixture: [(data, share), ...]")
        if augment is not None and not isinstance(augment, Augment):
            raise TypeError(f"augment={augment!r}: want warpfeed.Augment; {_options._ELSEWHERE['transform']}")

        options: dict[str, Any] = {"data": [tuple(part) for part in data] if isinstance(data, (list, tuple)) else data}
        if batch_size is not None:
            options["batch_size"] = batch_size
        if global_batch_size is not None:
            options["global_batch_size"] = global_batch_size
        options["last_batch"] = last_batch or ("drop" if drop_last else "keep")
        _options.ranks(options, rank, world_size, distributed)
        shuffled, self._seed = _options.shuffling(shuffle, seed)
        options["shuffle" if shuffled else "seed"] = self._seed
        optional = {
            "shuffle_window": shuffle_window, "repeat": repeat, "soft_labels": soft_labels, "retries": retries,
            "timeout": timeout, "memory_limit": memory_limit, "max_pixels": max_pixels,
            "max_sample_bytes": max_sample_bytes, "max_skipped": max_skipped, "augment": augment,
            "annotations_follow": annotations_follow,
        }  # fmt: skip
        options.update((name, value) for name, value in optional.items() if value is not None)
        if subset is not None:
            options["subset"] = [int(i) for i in subset]
        if order is not None:
            options["order"] = _options.ordered(order)
        if weights is not None:
            options["weights"] = [float(w) for w in weights]
        flags = {"balanced": balanced, "by_class_name": by_class_name, "keep_labels": keep_labels, "strict": strict}
        options.update((name, True) for name, is_set in flags.items() if is_set)
        options["workers"] = _one("num_workers", num_workers, "workers", workers) or 0
        options["prefetch"] = prefetch
        options["decode_on"] = decode_on
        options["decode_share"] = decode_share
        options["pinned"] = bool(_one("pin_memory", pin_memory, "pinned", pinned))
        options["mmap"] = bool(mmap)
        options["index"] = bool(index)
        if classes is not None:
            options["classes"] = list(classes)
        if classes_file is not None:
            options["classes_file"] = _options.path_text(classes_file)
        if table is not None:
            options["table"] = table
        options["unlabelled"] = bool(unlabelled)
        if dtype is not None:
            options["dtype"] = _options.dtype_name(dtype)
        options["layout"] = "nchw" if layout == "nchw" else "nhwc"
        if normalize is not None:
            options["normalize"] = _options.normalization(normalize)
        if fields:
            options["fields"] = dict(fields)
        if without:
            options["without"] = [without] if isinstance(without, str) else list(without)
        if trace is not None:
            options["trace"] = _options.traced(trace)
        if resume is not None:
            options["resume"] = _options.state_text("resume", resume)

        #: Samples in a batch of this rank, as it was given.
        self.batch_size = batch_size if batch_size is not None or global_batch_size is not None else 32
        #: Whether a last batch that is not full is dropped.
        self.drop_last = options["last_batch"] == "drop"
        #: As torch's loader has it; ``len`` is that of the source.
        self.pin_memory = options["pinned"]
        #: ``torch`` has device tensors on it; None for host memory.
        self.device = ordinal
        #: For trainers that call ``loader.sampler.set_epoch``.
        self.sampler = Sampler(self)
        self._transforms = Transforms(transforms)
        self._output = output
        self._convert = {"torch": _batch.to_torch, "numpy": _batch.to_numpy, "dlpack": _batch.to_dlpack}[output]
        kinds = {"image": Image(), **(fields or {})}
        pictures = {name for name, kind in kinds.items() if isinstance(kind, Image)}
        self._channels_last = frozenset(pictures if layout == "channels_last" else ())
        # Labels that nobody asked for may be missing in a batch of other fields.
        self._wants_label = unlabelled or soft_labels is not None or "label" in (fields or {})
        # Whether somebody has said which share of the samples this process gets.
        self._share = "given" if rank is not None or distributed is False else "asked" if distributed else None
        self._core = _warpfeed.Core(options, copy, ordinal, self._stream())
        self._lock = threading.Lock()
        self._next_epoch: int = self._core.first_epoch()
        close_at_exit(self)
        #: The number of samples and the classes.
        self.dataset = Dataset(self._core.source_len(), self._core.classes())
        self._own = frozenset(vars(self)) - foreign

    def _stream(self) -> int:
        """The handle of torch's current stream on the device."""
        if self.device is None:
            return 0
        torch = _options.torch() if self._output == "torch" else None
        if torch is None or not torch.cuda.is_available():
            return 0
        return int(torch.cuda.current_stream(self.device).cuda_stream)

    def __iter__(self) -> Iterator[Any]:
        """The next epoch. It begins with the first batch that is asked for, so that
        :meth:`set_epoch` counts up to then, and an iterator that nobody uses takes no epoch. An
        epoch that is under way then ends."""
        return _Epoch(self)

    def epoch_from(self, epoch: int, first: int) -> Iterator[Any]:
        """Epoch ``epoch`` from batch ``first`` on, which costs no more than from 0. The next ``iter``
        is then the epoch after it."""
        return _Epoch(self, (int(epoch), int(first)))

    def replay(self, n: int) -> Iterator[Any]:
        """The first ``n`` batches of epoch 0 again and again, without an end: how fast the step would
        be without a loader. They do not count in the statistics, and the step must not write to
        them. An epoch that is under way ends.

        Raises:
            WarpfeedError: if ``n`` is 0, or more than ``prefetch`` + 1 (3 if that is automatic).
        """
        self._check_world()
        batches = self._core.replay(n)
        _say()
        return map(self._made, itertools.cycle(batches))

    def _begin(self, at: tuple[int, int] | None) -> int:
        """Begins the next epoch, or the one ``at`` (epoch, batch); gives the number of its turn."""
        self._check_world()
        with self._lock:
            turn = self._core.begin(self._next_epoch) if at is None else self._core.begin(*at)
            self._next_epoch = 1 + (self._next_epoch if at is None else at[0])
        return turn

    def _check_world(self) -> None:
        """An error if this rank turns out to be one of several, and nobody said what it gets."""
        if self._share != "given":
            _options.check_world(self.rank, self.world_size, None if self._share is None else True)

    def __len__(self) -> int:
        """Batches of the next epoch, on this rank."""
        return int(self._core.num_batches(self._next_epoch))

    def set_epoch(self, epoch: int) -> None:
        """The next ``iter`` is epoch ``epoch``.

        After a state was loaded, the epoch of the state begins at its batch, and earlier epochs are
        empty.
        """
        with self._lock:
            self._next_epoch = int(epoch)

    @property
    def epoch(self) -> int:
        """The epoch of the next ``iter``."""
        return self._next_epoch

    def state_dict(self) -> dict[str, Any]:
        """Where the run stands, exact to the batch that was delivered last.

        It has numbers and texts alone: JSON can hold it, and ``torch.load(weights_only=True)``
        takes it. It is the same on every rank that has seen as many batches.
        """
        state: dict[str, Any] = json.loads(self._core.checkpoint())
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where ``state`` stands, with the next ``iter``. Workers and ranks may differ.

        Raises:
            WarpfeedError: if the seed, the global batch, the order or the data set differs.
        """
        self._core.resume(_options.state_text("state", state))
        with self._lock:
            self._next_epoch = self._core.first_epoch()

    def stats(self) -> Stats:
        """What the loader has done so far: a dict, which prints as a table."""
        return Stats(*self._core.stats())

    def device_stats(self) -> dict[str, int] | None:
        """What the device's memory holds, in bytes, and how much was copied there; None without a
        device."""
        stats = self._core.device_stats()
        return None if stats is None else dict(json.loads(stats))

    def verdict(self) -> Report:
        """What limits the loader, and what would lift that limit: a dict, which prints as
        text."""
        return Report(*self._core.verdict())

    def memory_plan(self) -> Report:
        """The memory of the loader in bytes: a dict, which prints as a sentence."""
        return Report(*self._core.memory_plan())

    def faults(self) -> list[tuple[int, int, Exception]]:
        """The samples that were skipped: epoch, batch and error of each."""
        return list(self._core.faults())

    def classes(self) -> list[str]:
        """Names of the classes by label, if the source knows them."""
        return list(self._core.classes())

    def part(self, id: int) -> int:
        """Which data set of a mixture the sample with this id comes from."""
        return int(self._core.part(id))

    @property
    def rank(self) -> int:
        """The rank that this loader serves."""
        return int(self._core.rank()[0])

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return int(self._core.rank()[1])

    @property
    def num_workers(self) -> int:
        """The number of worker threads."""
        return int(self._core.settings()[0])

    @property
    def prefetch(self) -> int:
        """Batches made ahead now."""
        return int(self._core.settings()[1])

    def samples_of_rank(self) -> int:
        """About how many samples of the next epoch this rank gets."""
        return int(-(-self._core.epoch_len(self._next_epoch) // self.world_size))

    def close(self) -> None:
        """Ends all threads. Batches that are held stay valid. It is called by itself when the last
        reference goes, and at the end of the program."""
        self._core.close()
        _say()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        """By its arguments: another process opens it where it stands here. Its next loop is the one that
        would be next here, :meth:`state_dict` is the same, and attributes of a subclass come along.

        Raises:
            TypeError: for a loader with ``trace``, since two loaders would write one file.
        """
        if "trace" in self._arguments:
            trace = self._arguments["trace"]
            raise TypeError(f"trace={trace!r}: such a loader cannot be pickled, since two loaders would write one file")
        state = self.state_dict()
        position = state if (state["epoch"], state["batch"]) != (0, 0) else None
        attributes = {name: value for name, value in vars(self).items() if name not in self._own}
        return _reopen, (type(self), self._arguments, self._next_epoch, position), attributes or None

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self._arguments.items() if name != "data")
        return f"{type(self).__name__}({self._arguments['data']!r}{', ' if arguments else ''}{arguments})"

    def _made(self, native: Any) -> Any:
        """The batch as the user gets it."""
        names, facts = native.fields(), _batch.facts_of(native)
        absent: dict[str, Exception] = {}
        fields: Fields
        if names == ["image", "label"]:
            fields = (self._field(native, "image"), self._field(native, "label"))
        else:
            fields = {}
            for name in names:
                try:
                    fields[name] = self._field(native, name)
                except WarpfeedError as e:
                    if name != "label" or self._wants_label or e.kind != "source":
                        raise
                    absent[name] = e
        if self._transforms:
            fields = self._transforms(fields, self._seed, self.rank, native.epoch, native.index)
        return Batch(fields, facts) if isinstance(fields, tuple) else FieldBatch(fields, facts, absent)

    def _field(self, native: Any, name: str) -> Any:
        return self._convert(native, name, name in self._channels_last)


class _Epoch:
    """An iterator over one epoch."""

    def __init__(self, loader: Loader, at: tuple[int, int] | None = None) -> None:
        self._loader: Loader | None = loader
        self._turn: int | None = None
        self._at = at
        self._lock = threading.Lock()

    def __iter__(self) -> _Epoch:
        return self

    def __next__(self) -> Any:
        loader = self._loader
        if loader is None:
            raise StopIteration
        if self._turn is None:
            with self._lock:
                if self._turn is None:
                    self._turn = loader._begin(self._at)
        native = loader._core.next(self._turn)
        _say()
        if native is None:
            self._loader = None
            raise StopIteration
        return loader._made(native)

    def __len__(self) -> int:
        return 0 if self._loader is None else len(self._loader)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("an epoch that is under way cannot be pickled; pickle the loader, or its state_dict()")

    def __del__(self) -> None:
        # What was prepared ahead for a loop that was left goes back.
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


def _is_part(part: Any) -> bool:
    return isinstance(part, (list, tuple)) and len(part) == 2


def _one(name: str, value: Any, other: str, other_value: Any) -> Any:
    """One of two names for the same."""
    if value is not None and other_value is not None and value != other_value:
        raise ConfigError(f"{name}={value!r} and {other}={other_value!r} are the same; set one of them")
    return value if value is not None else other_value
