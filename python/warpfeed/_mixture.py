"""Mixtures of datasets, and scheduled changes of their proportions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Mapping, Sequence

from ._augment import Augment
from ._error import ConfigError
from ._number_lists import Floats, integers
from ._options import Arguments, integer, one_of
from ._samples import mixture

__all__ = ["Mixture", "MixtureChange"]

#: The point at which a change begins, or the points at which it begins and ends.
_Point = int | tuple[int, int] | None


@dataclass(frozen=True)
class MixtureChange(Arguments):
    """A scheduled change of the proportions of a :class:`Mixture`.

    ``MixtureChange([0.5, 0.5], epoch=5)`` sets the proportions at the start of epoch 5.
    ``MixtureChange([0.5, 0.5], epoch=(5, 10))`` changes the proportions gradually, from the start
    of epoch 5 to the start of epoch 10.

    A change takes effect at the start of the first round (see :class:`Mixture`) that begins at the
    stated epoch, step or sample, or later. A gradual change moves the proportions at the start of
    each round, but at most 100 times.

    Args:
        proportions: one number per dataset. The numbers need not sum to 1.
        epoch: the epoch at whose start the proportions change, or a pair of epochs at whose starts
            a gradual change begins and ends.
        step: instead of ``epoch``, a number of global batches since the start of the run, or a
            pair.
        sample: instead of ``epoch``, a number of samples of all ranks since the start of the run,
            or a pair.
        curve: ``"linear"`` or ``"cosine"``, for a gradual change.

    Raises:
        ConfigError: unless exactly one of ``epoch``, ``step`` and ``sample`` is set, or if a value
            is invalid.
        TypeError: if a value has the wrong type.
    """

    proportions: Sequence[float]
    epoch: _Point = None
    step: _Point = None
    sample: _Point = None
    curve: Literal["linear", "cosine"] = "linear"

    def __post_init__(self) -> None:
        object.__setattr__(self, "proportions", tuple(proportions_of("proportions", self.proportions)))
        points = [unit for unit in ("epoch", "step", "sample") if getattr(self, unit) is not None]
        if len(points) != 1:
            raise ConfigError(f"{self!r}: expected exactly one of epoch, step and sample")
        one_of("curve", self.curve, ("linear", "cosine"))
        self._points()

    def _points(self) -> tuple[str, list[int]]:
        """Returns the unit (epoch, step or sample), and one or two points."""
        unit = next(unit for unit in ("epoch", "step", "sample") if getattr(self, unit) is not None)
        value = getattr(self, unit)
        if not isinstance(value, (tuple, list)):
            return unit, [integer(unit, value)]
        if len(value) != 2:
            raise TypeError(f"{unit}={value!r}: expected a whole number, or (first, last)")
        return unit, [integer(unit, point) for point in value]

    def _data(self) -> dict[str, Any]:
        unit, points = self._points()
        until = {unit: points[1]} if len(points) == 2 else None
        return {"from": {unit: points[0]}, "until": until, "curve": self.curve, "proportions": list(self.proportions)}


@dataclass(frozen=True)
class Mixture(Arguments):
    """A mixture of datasets with options. Samples are drawn in the given proportions:
    ``Loader(Mixture([("photos", 0.7), ("sketches", 0.3)], single_dataset_batches=True))``. Without
    options, a list of datasets and proportions is enough:
    ``Loader([("photos", 0.7), ("sketches", 0.3)])``.

    :meth:`Loader.set_mixture` changes the proportions during training.

    Args:
        parts: a list of pairs of a dataset and its proportion.
        schedule: scheduled changes of the proportions, in the order in which they occur.
        draws_per_round: number of draws per round: 10,000 by default, or 100 with
            ``single_dataset_batches``. Within each round, the proportions are exact up to rounding
            to whole draws. They change only between rounds.
        single_pass: indices of the datasets that are not repeated. When such a dataset ends,
            samples are drawn from the remaining datasets instead. After the last dataset has ended,
            the epoch in progress ends early, and later epochs are empty.
        single_dataset_batches: each global batch has samples of one dataset only. The proportions
            then apply to batches. Incomplete batches are dropped.
        global_batch_sizes: number of samples in the global batches of each dataset. The sizes
            replace ``batch_size`` and ``global_batch_size``, and require
            ``single_dataset_batches``. The number of batches in an epoch is the total number of
            samples divided by the mean batch size at the initial proportions, rounded down.
        augments: augmentations of individual datasets, by their positions: ``{1: Augment.eval(256,
            224)}``. Other datasets use the loader's ``augment``. All datasets must have the same
            image size and the same :meth:`Augment.mix` in every epoch. If an image combines several
            samples, as in a mosaic, the augmentation of the first sample applies to all of them.

    Raises:
        ConfigError: if a number is out of range.
        TypeError: if a value has the wrong type.
    """

    parts: Sequence[tuple[Any, float]]
    schedule: Sequence[MixtureChange] = ()
    draws_per_round: int | None = None
    single_pass: Sequence[int] = ()
    single_dataset_batches: bool = False
    global_batch_sizes: Sequence[int] = ()
    augments: Mapping[int, Augment] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", mixture(list(self.parts)))
        changes = () if isinstance(self.schedule, MixtureChange) else tuple(self.schedule)
        if isinstance(self.schedule, MixtureChange) or not all(isinstance(change, MixtureChange) for change in changes):
            raise TypeError(f"schedule={self.schedule!r}: expected a list of warpfeed.MixtureChange")
        object.__setattr__(self, "schedule", changes)
        for name in ("single_pass", "global_batch_sizes"):
            object.__setattr__(self, name, tuple(integers(name, getattr(self, name))))
        augments = dict(self.augments)
        for dataset, augment in augments.items():
            integer("augments", dataset)
            if not isinstance(augment, Augment):
                raise TypeError(f"augments: dataset {dataset} has {augment!r}: expected warpfeed.Augment")
        object.__setattr__(self, "augments", augments)
        if self.draws_per_round is not None:
            integer("draws_per_round", self.draws_per_round)

    def _options(self) -> dict[str, Any]:
        return {
            "schedule": list(self.schedule),
            "draws_per_round": self.draws_per_round,
            "single_pass": list(self.single_pass),
            "single_dataset_batches": bool(self.single_dataset_batches),
            "global_batch_sizes": list(self.global_batch_sizes),
        }


def proportions_of(name: str, values: Any) -> list[float]:
    """Converts ``values`` to a list of floats. Raises a TypeError if they are not numbers."""
    import numpy as np

    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise TypeError(f"{name}={values!r}: expected a list of numbers")
    return [number for piece in Floats(name, values) for number in np.frombuffer(piece, np.float64).tolist()]
