"""Exports metrics of loaders and decoders to monitoring systems and experiment trackers.

::

    loader = warpfeed.Loader("train", batch_size=256, shuffle=True, seed=42)
    for images, labels in loader:
        pass
    numbers = warpfeed.metrics.as_dict(loader.stats())  # wandb.log(numbers)
    page = warpfeed.metrics.prometheus_text(train=loader)

`METRICS` lists all metrics. Their names, units and labels are stable. A metric that a loader does
not measure is absent: with host batches, there is no ``warpfeed_stall_seconds_total``. The metrics
are computed from ``stats()`` when something reads them, so exporting them costs nothing otherwise.
"""

from __future__ import annotations

import importlib
import time
import weakref
from typing import Any, Iterator, Mapping, NamedTuple

from ._error import ConfigError

__all__ = ["METRICS", "Collector", "Metric", "as_dict", "observe", "prometheus_text"]

#: The worker stages, which are the values of the label ``stage``.
_STAGES = ("read", "decode", "transform", "write")
#: OpenTelemetry calls back for each instrument separately. Callbacks within this time, in seconds,
#: share one snapshot.
_SHARED_SECONDS = 0.05


class Metric(NamedTuple):
    """A metric, which has the same name in all output formats."""

    name: str
    help: str
    #: The path in ``Stats``, such as ``stall/seconds``. For a metric with a label, the path within
    #: the statistics of one stage or field.
    path: str
    #: ``stage`` or ``field``; empty if the metric has one value per loader.
    label: str = ""

    @property
    def type(self) -> str:
        """``counter`` for values that never decrease, otherwise ``gauge``."""
        return "counter" if self.name.endswith("_total") else "gauge"

    @property
    def unit(self) -> str:
        """The unit as a UCUM code: ``s``, ``By``, or ``1`` for counts."""
        parts = self.name.split("_")
        return "s" if "seconds" in parts else "By" if "bytes" in parts else "1"


#: All metrics. The page "Metrics" in the documentation shows this table.
METRICS = tuple(
    Metric(f"warpfeed_{name}", *row)
    for name, *row in [
        ("batches_total", "Delivered batches", "batches"),
        ("samples_total", "Delivered samples", "samples"),
        ("epochs_total", "Epochs that delivered at least one batch", "epochs"),
        ("prepared_samples_total", "Samples that workers prepared, delivered or not", "prepared_samples"),
        ("damaged_images_total", "Damaged images in delivered batches", "damaged_images"),
        ("read_retries_total", "Retries after a transient read error", "read_retries"),
        ("epoch_seconds_total", "Time within epochs", "seconds"),
        ("wait_seconds_total", "Time that the host spent waiting for batches", "waited_seconds"),
        ("start_wait_seconds_total", "Time that the host waited for the first batch of an epoch", "start_wait_seconds"),
        ("stall_seconds_total", "Time that the device's stream spent waiting for batches", "stall/seconds"),
        ("step_seconds_total", "Time from receiving a batch to requesting the next one", "step/seconds"),
        ("slot_wait_seconds_total", "Time during which all batch buffers were in use", "slot_wait/seconds"),
        ("worker_seconds_total", "Total time of all workers within epochs", "worker_seconds"),
        ("worker_delayed_seconds_total", "Time that workers spent waiting for a core", "delayed_seconds"),
        ("stage_seconds_total", "Time that workers spent in each stage", "seconds", "stage"),
        ("stage_samples_total", "Samples that each stage of the workers processed", "count", "stage"),
        ("field_seconds_total", "Time that workers spent computing each field", "seconds", "field"),
        ("field_samples_total", "Samples for which each field was computed", "count", "field"),
        ("read_bytes_total", "Stored bytes of the prepared samples", "bytes_read"),
        ("readahead_seconds_total", "Read time of the reader threads, summed over parallel reads", "readahead/seconds"),
        ("readahead_samples_total", "Samples that the reader threads read", "readahead/count"),
        ("copy_seconds_total", "Time spent copying to the device", "copy/seconds"),
        ("copy_bytes_total", "Bytes copied to the device", "copy/bytes"),
        ("convert_seconds_total", "Time that the device spent converting batches", "convert/seconds"),
        ("device_decode_seconds_total", "Time that the device spent decoding", "device_decode/seconds"),
        (
            "images_sent_to_device_total",
            "Images that workers sent to the device for decoding or conversion",
            "images_sent_to_device",
        ),
        ("device_full_images_total", "Images that workers decoded for lack of device memory", "device_full_images"),
        ("device_failed_samples_total", "Samples that the device could not decode", "device_failed_samples"),
        ("network_requests_total", "Requests to the object store, including retries", "network/requests"),
        ("network_retries_total", "Requests repeated after an error", "network/retries"),
        ("network_hedges_total", "Requests repeated because the response was late", "network/hedges"),
        ("network_refusals_total", "Requests that the server refused because of overload", "network/refusals"),
        ("network_received_bytes_total", "Bytes received from the object store", "network/received_bytes"),
        ("network_used_bytes_total", "Received bytes from which samples were read", "network/used_bytes"),
        ("memory_cache_hits_total", "Samples served from the cache in memory", "network/memory_hits"),
        ("memory_cache_bytes_total", "Bytes served from the cache in memory", "network/memory_bytes"),
        ("disk_cache_hits_total", "Samples served from the cache on disk", "network/disk_hits"),
        ("disk_cache_bytes_total", "Bytes served from the cache on disk", "network/disk_bytes"),
        ("decoded_cache_hits_total", "Images that were in the cache of decoded images", "decoded_cache/hits"),
        ("decoded_cache_misses_total", "Images that were not in the cache of decoded images", "decoded_cache/misses"),
        ("process_cpu_seconds_total", "CPU time of the process since the loader was opened", "process/cpu_seconds"),
        ("process_disk_read_bytes_total", "Bytes that the process read from storage", "process/disk_read_bytes"),
        ("process_major_faults_total", "Page faults that read from storage", "process/major_faults"),
        ("workers", "Worker threads", "workers"),
        ("cores", "Cores that the process may use", "cores"),
        ("prefetch_batches", "Batches that are prepared ahead of the consumer", "prefetch"),
        ("slots", "Batch buffers in use on the host", "slots"),
        ("host_bytes", "Size of the batch buffers on the host", "host_bytes"),
        ("pinned_bytes", "Page-locked bytes of the batch buffers", "pinned_bytes"),
        ("device_bytes", "Memory allocated on the device", "device_bytes"),
        ("decoded_cache_images", "Images in the cache of decoded images", "decoded_cache/images"),
        ("decoded_cache_bytes", "Size of the cache of decoded images", "decoded_cache/bytes"),
    ]
)


def as_dict(stats: Mapping[str, Any]) -> dict[str, float]:
    """Returns the metrics by name, for W&B, TensorBoard, MLflow and other experiment trackers.

    If a metric has a label, the label's value follows the name, as in
    ``warpfeed_stage_seconds_total/decode``. For the totals of one epoch or interval, pass
    ``loader.stats().since(before)``.
    """
    return {f"{m.name}/{label}" if label else m.name: number for m in METRICS for label, number in _numbers(m, stats)}


def prometheus_text(**loaders: Any) -> str:
    """Returns the metrics in the text format of Prometheus, version 0.0.4.

    Args:
        **loaders: loaders and decoders. Each keyword becomes the value of the label ``loader``,
            such as ``train=loader``.

    Raises:
        ConfigError: if there is no loader, or if a value is neither a loader nor a decoder.
    """
    lines = []
    for metric, rows in _families(_Loaders(loaders).stats()):
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.type}"]
        for labels, number in rows:
            written = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
            lines.append(f"{metric.name}{{{written}}} {number!r}")
    return "".join(f"{line}\n" for line in lines)


class Collector:
    """A collector for the ``prometheus_client`` package, which ``warpfeed[prometheus]`` installs.

    ``prometheus_client.REGISTRY.register(Collector(train=loader))`` adds the metrics to the
    endpoint of ``prometheus_client.start_http_server``. The collector does not keep loaders alive.
    When the program drops a loader, the metrics of this loader disappear.

    Args:
        **loaders: loaders and decoders. Each keyword becomes the value of the label ``loader``,
            such as ``train=loader``.

    Raises:
        ConfigError: if there is no loader, or if a value is neither a loader nor a decoder.
    """

    def __init__(self, /, **loaders: Any) -> None:
        self._loaders = _Loaders(loaders)
        self._core = importlib.import_module("prometheus_client.core")

    def describe(self) -> Iterator[Any]:
        """Yields all metrics without values, so that a registry finds duplicate names."""
        for metric in METRICS:
            yield self._family(metric)

    def collect(self) -> Iterator[Any]:
        """Yields the metrics of all loaders."""
        for metric, rows in _families(self._loaders.stats()):
            family = self._family(metric)
            for labels, number in rows:
                family.add_metric(list(labels.values()), number)
            yield family

    def _family(self, metric: Metric) -> Any:
        family_type = self._core.CounterMetricFamily if metric.type == "counter" else self._core.GaugeMetricFamily
        return family_type(metric.name, metric.help, labels=["loader", *filter(None, [metric.label])])


def observe(meter: Any, /, **loaders: Any) -> None:
    """Creates an observable instrument of OpenTelemetry for each metric.
    ``warpfeed[opentelemetry]`` installs OpenTelemetry's API.

    The instruments do not keep loaders alive. When the program drops a loader, the metrics of this
    loader disappear.

    Args:
        meter: an ``opentelemetry.metrics.Meter``.
        **loaders: loaders and decoders. Each keyword becomes the value of the attribute
            ``loader``, such as ``train=loader``.

    Raises:
        ConfigError: if there is no loader, or if a value is neither a loader nor a decoder.
    """
    observation = importlib.import_module("opentelemetry.metrics").Observation
    loader_stats = _Loaders(loaders)

    def callback(metric: Metric) -> Any:
        return lambda _options: [
            observation(number, labels)
            for _, rows in _families(loader_stats.stats(_SHARED_SECONDS), (metric,))
            for labels, number in rows
        ]

    for metric in METRICS:
        create = meter.create_observable_counter if metric.type == "counter" else meter.create_observable_gauge
        create(metric.name, [callback(metric)], unit=metric.unit, description=metric.help)


class _Loaders:
    def __init__(self, loaders: dict[str, Any]) -> None:
        if not loaders:
            raise ConfigError("no loader: expected at least one, by name, such as train=loader")
        for name, loader in loaders.items():
            if not callable(getattr(loader, "stats", None)):
                raise ConfigError(f"{name}={loader!r}: expected a Loader or a Decoder")
        self._loader_refs = {name: weakref.ref(loader) for name, loader in loaders.items()}
        self._last: tuple[float, dict[str, Mapping[str, Any]]] | None = None

    def stats(self, max_age: float = 0.0) -> dict[str, Mapping[str, Any]]:
        """Returns the statistics of all loaders that still exist, at most ``max_age`` seconds
        old."""
        latest, now = self._last, time.monotonic()
        if latest is None or now - latest[0] >= max_age:
            loaders = [(name, loader()) for name, loader in self._loader_refs.items()]
            latest = now, {name: loader.stats() for name, loader in loaders if loader is not None}
            self._last = latest if max_age > 0 else None
        return latest[1]


def _families(
    loaders: Mapping[str, Mapping[str, Any]], metrics: tuple[Metric, ...] = METRICS
) -> Iterator[tuple[Metric, list[tuple[dict[str, str], float]]]]:
    """Yields each metric with the labels and values of all loaders."""
    for metric in metrics:
        rows = [
            ({"loader": name, metric.label: label} if metric.label else {"loader": name}, number)
            for name, stats in loaders.items()
            for label, number in _numbers(metric, stats)
        ]
        if rows:
            yield metric, rows


def _numbers(metric: Metric, stats: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yields the numbers of a metric, each with the value of its label, or "" without a label."""
    groups: Mapping[str, Any] = {"": stats}
    if metric.label:
        groups = {stage: stats[stage] for stage in _STAGES} if metric.label == "stage" else stats["fields"]
    for label, value in groups.items():
        for key in metric.path.split("/"):
            value = None if value is None else value[key]
        if value is not None:
            yield label, value


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
