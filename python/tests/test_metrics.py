"""Tests that metrics have stable names with units, that each output contains the values of the
statistics, and that the comparison of ranks names the slow rank and the cause."""

from __future__ import annotations

import gc
import http.server
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import pytest
from conftest import ROOT, Images, bmp, need, needs, ran
from warpfeed import Augment, ConfigError, Decoder, Loader, Mask, metrics
from warpfeed._report import Stats

#: Users refer to these names in dashboards and alerts, so removing or renaming one is a breaking
#: change.
NAMES = """
    batches_total samples_total epochs_total prepared_samples_total damaged_images_total
    read_retries_total epoch_seconds_total wait_seconds_total start_wait_seconds_total
    stall_seconds_total step_seconds_total slot_wait_seconds_total worker_seconds_total
    worker_delayed_seconds_total stage_seconds_total{stage} stage_samples_total{stage}
    field_seconds_total{field} field_samples_total{field} read_bytes_total readahead_seconds_total
    readahead_samples_total copy_seconds_total copy_bytes_total convert_seconds_total
    device_decode_seconds_total images_sent_to_device_total device_full_images_total
    device_failed_samples_total network_requests_total network_retries_total network_hedges_total
    network_refusals_total network_received_bytes_total network_used_bytes_total
    memory_cache_hits_total memory_cache_bytes_total disk_cache_hits_total disk_cache_bytes_total
    decoded_cache_hits_total decoded_cache_misses_total process_cpu_seconds_total
    process_disk_read_bytes_total process_major_faults_total workers cores prefetch_batches slots
    host_bytes pinned_bytes device_bytes decoded_cache_images decoded_cache_bytes
""".split()

STAGE = {"count": 7, "seconds": 1.5, "bytes": 1 << 40, "p50_seconds": 0.1, "p99_seconds": 0.2, "histogram": []}
NETWORK = [
    "requests", "retries", "hedges", "refusals", "received_bytes", "used_bytes", "memory_hits", "memory_bytes", "disk_hits",
    "disk_bytes",
]  # fmt: skip


@pytest.fixture
def loader(mini: str) -> Iterator[Loader]:
    with Loader(mini, batch_size=16, augment=Augment.resize(8), output="numpy") as opened:
        for _ in opened:
            pass
        yield opened


class Whole:
    """Statistics with every optional number, and fields with unusual names."""

    def __init__(self, stats: Stats) -> None:
        self.found = stats
        for name in ("readahead", "copy", "convert", "device_decode", "stall"):
            stats[name] = dict(STAGE)
        stats["network"] = {name: 100 + offset for offset, name in enumerate(NETWORK)}
        stats["decoded_cache"] = {"hits": 7, "misses": 5, "images": 3, "bytes": 1 << 20, "capacity_bytes": 1 << 21}
        stats["process"]["disk_read_bytes"] = 4096
        stats["fields"] = {"decode": dict(STAGE), 'a "b" \\n\nd': dict(STAGE, seconds=2.25)}

    def stats(self) -> Stats:
        return self.found


def test_metric_names_and_labels_are_stable() -> None:
    results = [f"{m.name}{{{m.label}}}" if m.label else m.name for m in metrics.METRICS]
    assert results == [f"warpfeed_{name}" for name in NAMES]


def test_every_metric_name_contains_its_unit() -> None:
    for metric in metrics.METRICS:
        assert re.fullmatch(r"warpfeed(_[a-z]+)+", metric.name)
        if metric.path.endswith("seconds"):
            assert metric.name.endswith("_seconds_total") and metric.unit == "s"
        if metric.path.endswith("bytes") or metric.path == "bytes_read":
            assert re.search(r"_bytes(_total)?$", metric.name) and metric.unit == "By"


def test_metrics_equal_the_statistics(loader: Loader) -> None:
    stats = loader.stats()
    numbers = metrics.as_dict(stats)
    assert numbers["warpfeed_samples_total"] == stats["samples"] == 64
    assert numbers["warpfeed_wait_seconds_total"] == stats["waited_seconds"] > 0
    assert numbers["warpfeed_stage_seconds_total/decode"] == stats["decode"]["seconds"] > 0
    assert numbers["warpfeed_workers"] == stats["workers"]
    assert not {"warpfeed_stall_seconds_total", "warpfeed_network_requests_total"} & set(numbers), "unmeasured values"
    assert all(type(number) in (int, float) for number in numbers.values())
    complete = metrics.as_dict(Whole(loader.stats()).stats())
    assert {name.partition("/")[0] for name in complete} == {m.name for m in metrics.METRICS}
    assert complete["warpfeed_disk_cache_bytes_total"] == 109 and complete["warpfeed_copy_bytes_total"] == 1 << 40
    assert complete["warpfeed_field_seconds_total/decode"] == 1.5 != complete["warpfeed_stage_seconds_total/decode"]


def test_counters_of_a_running_loader_never_decrease(mini: str) -> None:
    counters = [m.name for m in metrics.METRICS if m.type == "counter"]
    with Loader(mini, batch_size=4, augment=Augment.resize(8), output="numpy") as loader:
        last: dict[str, float] = {}
        for _ in range(2):
            for _batch in loader:
                now = metrics.as_dict(loader.stats())
                assert all(now[name] >= last.get(name, 0) for name in now if name.partition("/")[0] in counters)
                last = now


def families(result: Any) -> dict[str, Any]:
    """Returns the samples of metric families by name and labels."""
    return {
        (f.type, f.documentation, s.name, *sorted(s.labels.items())): s.value for f in result for s in f.samples
    }


def test_the_prometheus_text_equals_the_collector(loader: Loader) -> None:
    need("prometheus_client")
    from prometheus_client.parser import text_string_to_metric_families

    complete, decoder = Whole(loader.stats()), Whole(loader.stats())
    text = metrics.prometheus_text(train=complete, val=decoder)
    parsed = families(text_string_to_metric_families(text))
    assert parsed == families(metrics.Collector(train=complete, val=decoder).collect())
    assert len(parsed) == 2 * (len(NAMES) + 2 * 3 + 2 * 1)
    field = {key: value for key, value in parsed.items() if ("field", 'a "b" \\n\nd') in key}
    assert sorted(field.values()) == [2.25, 2.25, 7, 7]


def test_prometheus_client_serves_the_metrics(loader: Loader) -> None:
    need("prometheus_client")
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(metrics.Collector(train=loader))
    page = generate_latest(registry).decode()
    assert 'warpfeed_samples_total{loader="train"} 64.0' in page
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(metrics.Collector(train=loader))


def test_opentelemetry_observes_the_same_numbers(loader: Loader) -> None:
    need("opentelemetry.sdk.metrics")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    complete = Whole(loader.stats())
    metrics.observe(provider.get_meter("test"), train=complete)
    result = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics  # type: ignore[union-attr]
    points = {}
    for metric in result:
        for point in metric.data.data_points:
            attributes = dict(point.attributes)
            assert attributes.pop("loader") == "train"
            points["/".join([metric.name, *map(str, attributes.values())])] = point.value
    assert points == metrics.as_dict(complete.stats())
    provider.shutdown()


def test_metrics_do_not_keep_a_loader_alive(mini: str) -> None:
    need("prometheus_client")
    loader = Loader(mini, batch_size=16, augment=Augment.resize(8), output="numpy")
    collector = metrics.Collector(train=loader)
    assert list(collector.collect())
    del loader
    gc.collect()
    assert not list(collector.collect())


def test_a_closed_loader_and_a_decoder_have_metrics(mini: str) -> None:
    loader = Loader(mini, batch_size=16, augment=Augment.resize(8), output="numpy")
    next(iter(loader))
    loader.close()
    with Decoder(augment=Augment.eval(36, 32), output="numpy") as decoder:
        text = metrics.prometheus_text(train=loader, requests=decoder)
    assert 'warpfeed_batches_total{loader="train"} 1\n' in text
    assert 'warpfeed_batches_total{loader="requests"} 0\n' in text


def test_computed_fields_have_their_own_metric() -> None:
    file = io.BytesIO()
    np.save(file, np.zeros((8, 8), np.uint8))

    class Masked(Images):
        def __getitem__(self, index: int) -> object:
            return {"bmp": bmp(8, 8, (1, 2, 3)), "label": 0, "decode.npy": file.getvalue()}

    options: Any = {"augment": Augment.resize(8), "output": "numpy"}
    with Loader(Masked(8), batch_size=4, fields={"decode": Mask("u8")}, **options) as loader:
        for _ in loader:
            pass
        stats = loader.stats()
    results = {name: number for name, number in metrics.as_dict(stats).items() if name.startswith("warpfeed_field_")}
    assert stats["fields"]["decode"]["count"] >= 8 and results == {
        "warpfeed_field_samples_total/decode": stats["fields"]["decode"]["count"],
        "warpfeed_field_seconds_total/decode": stats["fields"]["decode"]["seconds"],
    }


def test_metrics_without_a_loader_are_rejected() -> None:
    with pytest.raises(ConfigError, match="no loader: expected at least one, by name, such as train=loader"):
        metrics.prometheus_text()
    with pytest.raises(ConfigError, match="train=3: expected a Loader or a Decoder"):
        metrics.prometheus_text(train=3)


def test_the_page_lists_every_metric() -> None:
    page = ROOT / "docs" / "metrics.md"
    text = page.read_text(encoding="utf-8")
    labels = {"": "", "stage": "`stage`", "field": "`field`"}
    rows = [f"| `{m.name}` | {m.type} | {labels[m.label]} | {m.help} |" for m in metrics.METRICS]
    table = "\n".join(["<!-- metrics -->", "| name | type | label | content |", "|---|---|---|---|", *rows, ""])
    written = re.sub(r"<!-- metrics -->\n.*?(?=<!-- /metrics -->)", lambda _: table, text, flags=re.DOTALL)
    if os.environ.get("WARPFEED_BLESS"):
        page.write_text(written, encoding="utf-8")
    else:
        assert text == written, "run this test with WARPFEED_BLESS=1"


def unknown(queries: list[str]) -> set[str]:
    """Returns the metrics and labels in Prometheus queries that do not exist."""
    names = {m.name for m in metrics.METRICS}
    labels = {"job", "instance", "loader", "stage", "field"}
    results: set[str] = set()
    for query in queries:
        results |= set(re.findall(r"\bwarpfeed_\w+", query)) - names
        for listed in re.findall(r"\b(?:by|on|without|ignoring|group_left)\s*\(([^)]*)\)", query):
            results |= set(re.findall(r"\w+", listed)) - labels
        for selected in re.findall(r"\{([^}]*)\}", query):
            results |= set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selected)) - labels
    return results


def test_the_dashboard_uses_only_metrics_that_exist() -> None:
    dashboard = json.loads((ROOT / "docs" / "grafana" / "warpfeed.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    queries += [variable["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    assert len(queries) >= 10 and not unknown(queries)
    assert unknown(['sum by (rank) (rate(warpfeed_waits_total{host="a"}[1m]))']) == {
        "rank", "warpfeed_waits_total", "host",
    }  # fmt: skip


class Growing(Whole):
    """A running loader, with the optional numbers of `Whole`. The times grow."""

    def __init__(self, loader: Loader) -> None:
        self.loader, self.scrapes = loader, 0

    def stats(self) -> Stats:
        self.scrapes += 1
        result = Whole(self.loader.stats()).stats()
        stage = {**STAGE, "count": 7 * self.scrapes, "seconds": 0.1 * self.scrapes}
        result.update({name: stage for name in ("readahead", "copy", "convert", "device_decode", "stall")})
        return result


class Metrics(http.server.BaseHTTPRequestHandler):
    """Answers each request with the metrics of `served`."""

    served: Any = None

    def do_GET(self) -> None:
        page = metrics.prometheus_text(train=self.served).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: Any) -> None:
        pass


@needs("prometheus", bool(shutil.which("prometheus") and shutil.which("promtool")))
def test_every_query_of_the_dashboard_has_data_in_prometheus(mini: str, tmp_path: Path) -> None:
    with Loader(mini, batch_size=16, augment=Augment.resize(8), output="numpy") as loader:
        Metrics.served = Growing(loader)
        for _batch in loader:
            pass
        page = metrics.prometheus_text(train=Metrics.served)
        linted = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True)
        assert (linted.returncode, linted.stdout + linted.stderr) == (0, "")
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metrics)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        target = {"job_name": "training", "static_configs": [{"targets": [f"127.0.0.1:{server.server_address[1]}"]}]}
        (tmp_path / "prometheus.yml").write_text(
            json.dumps({"global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"}, "scrape_configs": [target]})
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        command = [
            "prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address={address}",
        ]  # fmt: skip
        check = [sys.executable, str(ROOT / "docs" / "grafana" / "check.py"), f"http://{address}"]
        prometheus = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            until, checked = time.monotonic() + 60, 0.0
            outputs: list[subprocess.CompletedProcess[str]] = []
            while time.monotonic() < until and (not outputs or outputs[-1].returncode):
                for _batch in loader:
                    time.sleep(0.01)
                if time.monotonic() > checked + 2:
                    outputs.append(subprocess.run([*check, "--interval", "5s"], capture_output=True, text=True))
                    checked = time.monotonic()
            shown = outputs[-1].stdout + outputs[-1].stderr
            assert outputs[-1].returncode == 0 and "train" in shown, shown
            # Without a GPU, the check fails unless an option states that there is none.
            Metrics.served = loader
            time.sleep(7)
            for _ in range(100):
                for _batch in loader:
                    pass
            without = subprocess.run([*check, "--interval", "5s"], capture_output=True, text=True)
            assert without.returncode == 1 and "Time waited on the device" in without.stdout, without
            allowed = [*check, "--interval", "5s", "--absent", "stall,network,readahead,field"]
            assert subprocess.run(allowed, capture_output=True).returncode == 0
        finally:
            prometheus.kill()
            prometheus.wait()
            server.shutdown()


#: The arguments are the rank, the slow rank, the cause, a folder, and "files" or "torch": how the
#: ranks exchange their statistics.
RANK = """
import json, pathlib, sys, threading, time, warpfeed
from conftest import bmp
rank, slow, cause, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], pathlib.Path(sys.argv[4])
small, large = bmp(8, 8, (1, 2, 3)), bmp(1500, 1500, (1, 2, 3))
one_at_a_time = threading.Lock()
class Images:
    def __len__(self): return 96
    def __getitem__(self, index):
        if rank == slow and cause == "read":
            with one_at_a_time:
                time.sleep(0.02)
        return (large if rank == slow and cause == "decode" else small), 0
def exchange(mine):
    (folder / f"{rank}.part").write_text(json.dumps(mine))
    (folder / f"{rank}.part").rename(folder / f"{rank}.json")
    files = [folder / f"{of}.json" for of in range(2)]
    while not all(file.exists() for file in files):
        time.sleep(0.01)
    return [json.loads(file.read_text()) for file in files]
loader = warpfeed.Loader(Images(), batch_size=4, augment=warpfeed.Augment.resize(8), output="numpy", num_workers=1)
for batch in loader:
    time.sleep(0.001 if rank == slow else 0.05)
collect = exchange
if sys.argv[5] == "torch":
    import torch.distributed as distributed
    distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    collect = None
found = loader.stats().gather(collect)
print(json.dumps([dict(found), str(found)]))
loader.close()
if collect is None:
    distributed.destroy_process_group()
"""


def ranks(tmp_path: Path, slow: int, cause: str, how: str) -> tuple[dict[str, Any], str]:
    """Runs two ranks, one of which is slow. Returns the comparison, which both must get, and its
    text."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(RANK), str(rank), str(slow), cause, str(tmp_path), how],
            stdout=subprocess.PIPE, text=True, env=environment,
        )
        for rank in range(2)
    ]  # fmt: skip
    results = [json.loads(process.communicate(timeout=120)[0].splitlines()[-1]) for process in running]
    assert results[0] == results[1], "the ranks disagree"
    return results[0][0], results[0][1]


def test_the_rank_with_slow_reads_is_named(tmp_path: Path) -> None:
    result, text = ranks(tmp_path, 1, "read", "files")
    # On a busy machine, single reads may take much longer than other reads.
    assert result["slowest"] == 1 and result["bottleneck"] in ("read", "straggler"), text
    assert result["wait_fraction"] == result["ranks"][1]["wait_fraction"] > result["ranks"][0]["wait_fraction"]
    assert result["stages"]["wait"]["rank"] == 1 and text.startswith("rank 1 is slow: it waits"), text
    assert re.search(r"\n- stage `(read|readahead)`: [\d.]+ s, and 0\.0 s on the other ranks", text), text
    assert "\n- rank 1: " in text


def test_the_rank_with_too_few_cores_is_named(tmp_path: Path) -> None:
    result, text = ranks(tmp_path, 0, "decode", "files")
    assert result["slowest"] == 0 and result["bottleneck"] in ("decode", "transform", "workers"), text
    assert text.startswith("rank 0 is slow: it waits") and result["stages"]["decode"]["rank"] == 0, text


def test_torch_distributed_gathers_the_ranks(tmp_path: Path) -> None:
    need("torch")
    result, text = ranks(tmp_path, 1, "read", "torch")
    assert result["slowest"] == 1 and result["bottleneck"] in ("read", "straggler") and len(result["ranks"]) == 2, text


def test_a_single_rank_needs_nothing_to_gather(loader: Loader) -> None:
    result = loader.stats().gather()
    assert result["slowest"] == 0 and len(result["ranks"]) == 1
    assert result["ranks"][0]["batches"] == 4 and str(result).startswith("rank 0 is the only rank: it waits")


def test_gather_refuses_an_incomplete_list(loader: Loader) -> None:
    for invalid in (lambda mine: None, lambda mine: [], lambda mine: [{"rank": 3}], lambda mine: "text"):
        with pytest.raises(ConfigError, match="collect returned .*: expected a list of the entries of all ranks"):
            loader.stats().gather(invalid)
    launched = ran(
        """
        import warpfeed, sys
        with warpfeed.Loader(sys.argv[1], batch_size=4, output="numpy", distributed=True) as loader:
            try:
                loader.stats().gather()
            except warpfeed.ConfigError as e:
                print(e)
        """,
        str(ROOT / "datasets" / "mini"), RANK="1", WORLD_SIZE="2", LOCAL_RANK="1", LOCAL_WORLD_SIZE="2",
    )  # fmt: skip
    assert "rank 1 of 2, but torch.distributed is not initialized" in launched


def entry(rank: int | None, wait_fraction: float, bottleneck: str = "read", read: float = 1.0) -> dict[str, Any]:
    stages = {"wait": wait_fraction, "read": read, "decode": 0.5}
    text = f"of {bottleneck}"
    return {"rank": rank, "wait_fraction": wait_fraction, "bottleneck": bottleneck, "verdict": text, "stages": stages}


def test_gather_names_ranks_and_reports_similar_waits() -> None:
    from warpfeed._gather import _compare

    # The entries of a subgroup keep the ranks of the whole run.
    part = _compare([entry(6, 0.1), entry(4, 0.5, read=9.0)])
    assert part["slowest"] == 4 and part["stages"]["read"] == {"rank": 4, "seconds": 9.0, "median_seconds": 5.0}
    assert str(part).splitlines() == [
        "rank 4 is slow: it waits 50% of the time, the other ranks 10% (median)",
        "- stage `read`: 9.0 s, and 1.0 s on the other ranks (median)",
        "- rank 4: of read",
    ]
    # Without known ranks, the position in the list is the rank.
    assert _compare([entry(None, 0.1), entry(None, 0.5)])["slowest"] == 1
    assert _compare([entry(0, 0.1), entry(0, 0.5)])["slowest"] == 1
    assert str(_compare([entry(0, 0.52), entry(1, 0.5)])).startswith("all 2 ranks wait about equally: rank 0 waits most")
    idle = _compare([entry(0, 0.01, "step"), entry(1, 0.02, "step")])
    assert str(idle).startswith("no rank is limited by its loader: rank 1 waits most, 2% of the time")
    missing = _compare([entry(0, 0.1), {**entry(1, 0.5), "stages": {"field mask": 3.0}}])
    assert missing["stages"]["field mask"] == {"rank": 1, "seconds": 3.0, "median_seconds": 1.5}
    assert "stage `field mask`: 3.0 s, and 0.0 s" in str(missing)
