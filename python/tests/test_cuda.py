"""Tests that device batches equal host batches, that they are ready for use on torch's current
stream, and that their memory is reused only after this stream has finished its work on them."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import batches_of, bmp, missing, need, needs
from warpfeed import Augment, Decoder, Loader, MultiHot, NdArray, Ragged, WarpfeedError

torch = need("torch")
if not torch.cuda.is_available():
    missing("cuda", "torch finds no device")

BATCHES = int(os.environ.get("WARPFEED_BATCHES", "1000"))
OPTIONS = {"batch_size": 16, "shuffle": True, "seed": 3, "augment": Augment.train(96)}


def sums(loader: Loader, count: int) -> list[tuple[int, int]]:
    return [(int(images.to(torch.int64).sum()), int(labels.sum())) for images, labels in batches_of(loader, count)]


@pytest.mark.parametrize("dtype", ["u8", "f16", "bf16", "f32"])
@pytest.mark.parametrize("layout", ["channels_last", "nhwc", "nchw"])
def test_device_batches_equal_host_batches(packed: str, dtype: str, layout: str) -> None:
    options = {**OPTIONS, "dtype": dtype, "layout": layout, "normalize": None if dtype == "u8" else "imagenet"}
    host, device = Loader(packed, **options), Loader(packed, device="cuda", **options)
    assert device.device == torch.cuda.current_device()
    for _ in range(2):
        for (images, labels), batch in zip(host, device, strict=True):
            assert batch.images.is_cuda and batch.labels.is_cuda and batch.images.stride() == images.stride()
            assert torch.equal(batch.images.cpu(), images) and torch.equal(batch.labels.cpu(), labels)


@pytest.mark.parametrize("decode_on", ["gpu", "auto"])
def test_the_device_decodes_bit_identically_to_the_host(packed: str, decode_on: str) -> None:
    options = {**OPTIONS, "dtype": "bf16", "normalize": "imagenet"}
    host, device = Loader(packed, **options), Loader(packed, device="cuda", decode_on=decode_on, **options)
    for _ in range(3):
        for (images, labels), batch in zip(host, device, strict=True):
            assert torch.equal(batch.images.cpu(), images) and torch.equal(batch.labels.cpu(), labels)
    stats = device.stats()
    assert 0 < stats["images_sent_to_device"] <= stats["prepared_samples"]
    # Only a few images of the dataset are progressive, or are not JPEGs.
    assert decode_on == "auto" or stats["images_sent_to_device"] > 0.8 * stats["prepared_samples"]


@pytest.mark.parametrize("side", [False, True])
@pytest.mark.parametrize("sleep", [0, 2_000_000])
def test_no_batch_is_torn_however_slow_the_consumer(packed: str, side: bool, sleep: int) -> None:
    count = BATCHES if not sleep else min(BATCHES, 300)
    expected = sums(Loader(packed, **OPTIONS), 40)
    loader = Loader(packed, device="cuda", **OPTIONS)
    stream = torch.cuda.Stream() if side else torch.cuda.current_stream()
    actual = []
    with torch.cuda.stream(stream):
        loader.set_epoch(0)
        for number, (images, labels) in enumerate(batches_of(loader, count)):
            if sleep:
                torch.cuda._sleep(sleep)
            actual.append((images.to(torch.int64).sum(), labels.sum()))
            if number % 40 == 39:
                loader.set_epoch(0)
    torch.cuda.synchronize()
    actual = [(int(a), int(b)) for a, b in actual]
    for number, pair in enumerate(actual):
        assert pair == expected[number % 40], f"batch {number}"


def test_the_current_stream_may_change_between_batches(packed: str) -> None:
    expected = sums(Loader(packed, **OPTIONS), 40)
    loader, streams, actual = Loader(packed, device="cuda", **OPTIONS), [torch.cuda.Stream() for _ in range(3)], []
    it = batches_of(loader, 40)
    for number in range(40):
        with torch.cuda.stream(streams[number % 3]):
            images, labels = next(it)
            torch.cuda._sleep(1_000_000)
            actual.append((images.to(torch.int64).sum(), labels.sum()))
            del images, labels
    torch.cuda.synchronize()
    assert [(int(a), int(b)) for a, b in actual] == expected


def test_a_kept_tensor_keeps_its_bytes_and_then_frees_its_slot(packed: str) -> None:
    loader = Loader(packed, device="cuda", prefetch=3, copy=False, **OPTIONS)
    images, _ = next(iter(loader))
    expected, address, others = images.clone(), images.data_ptr(), set()
    for other, _ in batches_of(loader, 200):
        others.add(other.data_ptr())
    assert torch.equal(images, expected) and address not in others
    del images
    others.update(other.data_ptr() for other, _ in batches_of(loader, 20))
    assert address in others


def test_batches_are_copied_while_all_slots_are_held(packed: str) -> None:
    loader = Loader(packed, device="cuda", **OPTIONS)
    batches = list(batches_of(loader, 40))
    for (images, labels), (a, b) in zip(batches, Loader(packed, **OPTIONS), strict=False):
        assert torch.equal(images.cpu(), a) and torch.equal(labels.cpu(), b)
    assert len({images.data_ptr() for images, _ in batches}) == 40


def test_a_page_locked_batch_may_be_dropped_during_its_upload(packed: str) -> None:
    expected = sums(Loader(packed, **OPTIONS), 40)
    loader = Loader(packed, pin_memory=True, copy=False, **OPTIONS)
    assert loader.memory_plan()["pinned_bytes"] > 0
    actual, pinned = [], None
    for images, labels in batches_of(loader, 200):
        pinned = images.is_pinned() if pinned is None else pinned
        torch.cuda._sleep(500_000)
        there = images.to("cuda", non_blocking=True)
        actual.append((there.to(torch.int64).sum(), int(labels.sum())))
        del images
        if len(actual) % 40 == 0:
            loader.set_epoch(0)
    assert pinned, "torch must report that the memory is page-locked"
    for number, (images, labels) in enumerate(actual):
        assert (int(images), labels) == expected[number % 40], f"batch {number}"


def test_a_graph_is_replayed_on_a_copy_of_each_batch(packed: str) -> None:
    loader = Loader(packed, device="cuda", dtype="f32", drop_last=True, **OPTIONS)
    static = torch.empty(16, 3, 96, 96, device="cuda").to(memory_format=torch.channels_last)
    weight = torch.randn(8, 3, 3, 3, device="cuda")
    for _ in range(3):
        out = torch.nn.functional.conv2d(static, weight).sum()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = torch.nn.functional.conv2d(static, weight).sum()
    for images, _ in loader:
        static.copy_(images)
        graph.replay()
        assert torch.allclose(out, torch.nn.functional.conv2d(images, weight).sum(), rtol=1e-3, atol=1)
        # Dropping a batch must not invalidate the capture of a torch stream.
        other = torch.cuda.CUDAGraph()
        with torch.cuda.graph(other):
            static.mul_(1)
            del images
    assert len(list(loader)) == 4


def test_next_during_a_capture_fails_and_the_loader_continues(packed: str) -> None:
    loader = Loader(packed, device="cuda", **OPTIONS)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        inside = Loader(packed, device="cuda", **OPTIONS)
    it = iter(inside)
    graph = torch.cuda.CUDAGraph()
    x = torch.zeros(4, device="cuda")
    with torch.cuda.stream(stream):
        graph.capture_begin()
        x.add_(1)
        with pytest.raises(WarpfeedError) as raised:
            next(it)
        graph.capture_end()
        assert raised.value.kind == "capturing"
        assert len(list(it)) == 4
    assert len(list(loader)) == 4


def test_batches_work_with_autocast_backward_and_compile(packed: str) -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.Flatten(), torch.nn.Linear(8 * 47 * 47, 4))
    model = model.cuda().to(memory_format=torch.channels_last)
    loader = Loader(packed, device="cuda", dtype=torch.bfloat16, normalize="imagenet", drop_last=True, **OPTIONS)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for images, labels in batches_of(loader, 12):
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    step = torch.compile(lambda x: (x.float() * 2).sum())
    images, _ = next(iter(loader))
    try:
        doubled = step(images)
    except Exception as e:  # no C compiler
        missing("torch-compile", type(e).__name__)
    assert torch.allclose(doubled, (images.float() * 2).sum(), rtol=1e-3, atol=1)


def test_a_tensor_read_by_a_joined_stream_is_safe(packed: str) -> None:
    """The streams must be joined before the drop, because `record_stream` works only for torch's
    own memory."""
    expected = sums(Loader(packed, **OPTIONS), 40)
    loader, side, actual = Loader(packed, device="cuda", **OPTIONS), torch.cuda.Stream(), []
    for images, labels in batches_of(loader, 40):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(1_000_000)
            actual.append((images.to(torch.int64).sum(), labels.sum()))
        torch.cuda.current_stream().wait_stream(side)
        del images, labels
    torch.cuda.synchronize()
    assert [(int(a), int(b)) for a, b in actual] == expected


def test_dlpack_orders_batches_on_the_stream_of_the_consumer(packed: str) -> None:
    expected = sums(Loader(packed, **OPTIONS), 20)
    loader, side, actual = Loader(packed, device="cuda", output="dlpack", **OPTIONS), torch.cuda.Stream(), []
    for batch in batches_of(loader, 20):
        assert batch.images.__dlpack_device__() == (2, torch.cuda.current_device())
        with torch.cuda.stream(side):
            images, labels = torch.from_dlpack(batch.images), torch.from_dlpack(batch.labels)
            del batch
            torch.cuda._sleep(500_000)
            actual.append((images.to(torch.int64).sum(), labels.sum()))
            del images, labels
    torch.cuda.synchronize()
    assert [(int(a), int(b)) for a, b in actual] == expected
    with pytest.raises(BufferError, match="ambiguous"):
        next(iter(loader)).images.__dlpack__(stream=0)


def test_memory_does_not_grow_and_is_released(packed: str) -> None:
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    loader = Loader(packed, device="cuda", **OPTIONS)
    next(iter(loader))
    opened = torch.cuda.mem_get_info()[0]
    for _ in batches_of(loader, 400):
        pass
    assert abs(torch.cuda.mem_get_info()[0] - opened) < 64 << 20
    loader.close()
    del loader
    gc.collect()
    torch.cuda.synchronize()
    assert before - torch.cuda.mem_get_info()[0] < 256 << 20


def test_device_fields_equal_host_fields() -> None:
    options = {
        "batch_size": 8, "augment": Augment.resize(8, 8), "dtype": "f16",
        "fields": {"emb": NdArray("f32", [2]), "note": Ragged.bytes(6), "more": MultiHot(16)},
    }  # fmt: skip
    samples = [
        {"bmp": bmp(8, 8, (i, 2, 3)), "label": i, "emb": bytes([i] * 8), "note": b"n" * (i % 6), "more.txt": b"1 5"}
        for i in range(20)
    ]
    source = type("Source", (), {"__len__": lambda self: 20, "__getitem__": lambda self, i: samples[i]})()
    for there, local in zip(Loader(source, device="cuda", **options), Loader(source, **options), strict=True):
        assert set(there) == set(local) == {"image", "label", "emb", "note", "note.count", "more"}
        for name, field in there.items():
            assert field.is_cuda and torch.equal(field.cpu(), local[name]), name


def test_a_replay_repeats_batches_and_device_memory_is_counted(packed: str) -> None:
    loader = Loader(packed, device="cuda", **OPTIONS)
    expected = sums(Loader(packed, **OPTIONS), 2)
    replay = loader.replay(2)
    actual = [next(replay) for _ in range(5)]
    assert [(int(i.to(torch.int64).sum()), int(l.sum())) for i, l in actual] == [expected[n] for n in (0, 1, 0, 1, 0)]
    stats = loader.device_stats()
    assert stats is not None and stats["copied_bytes"] > 0
    assert stats["reserved_bytes"] >= stats["peak_bytes"] >= stats["allocated_bytes"] > 0
    del replay, actual
    assert len(list(loader)) == 4


@needs("two-devices", torch.cuda.device_count() > 1)
def test_a_loader_uses_the_second_device(packed: str) -> None:
    for images, _ in Loader(packed, device="cuda:1", **OPTIONS):
        assert images.device == torch.device("cuda:1")
    with torch.cuda.device(1):
        assert Loader(packed, device="cuda", **OPTIONS).device == 1


def test_numpy_arrays_of_device_memory_are_refused(packed: str) -> None:
    with pytest.raises(ValueError, match="output='numpy' supports only host memory"):
        Loader(packed, device="cuda", output="numpy")
    batch = next(iter(Loader(packed, device="cuda", output="dlpack", **OPTIONS)))
    with pytest.raises((AttributeError, BufferError, TypeError, ValueError, RuntimeError)):
        np.from_dlpack(batch.images)


def encoded(mini: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(Path(mini).rglob("*")) if path.is_file()]


SERVING: dict[str, Any] = {"max_batch": 16, "augment": Augment.eval(72, 64), "dtype": "f32", "normalize": "imagenet"}


@pytest.mark.parametrize("decode_on", ["gpu", "cpu"])
def test_a_response_is_ready_on_the_stream_that_takes_it(mini: str, decode_on: str) -> None:
    """Requests are submitted on the default stream, and taken on a different one while the device
    is busy."""
    originals = encoded(mini)
    host = Decoder(**SERVING)
    expected = [host.decode(originals[first : first + 16]).images.clone() for first in (0, 16, 32, 48)]
    decoder = Decoder(device="cuda", decode_on=decode_on, **SERVING)
    streams, actual = [torch.cuda.Stream() for _ in range(2)], []
    for turn in range(200):
        pending = decoder.submit(originals[16 * (turn % 4) : 16 * (turn % 4) + 16])
        # The default stream is far behind. Waiting for it would be slow, and relying on it would
        # read torn bytes.
        torch.cuda._sleep(200_000)
        with torch.cuda.stream(streams[turn % 2]):
            decoded = pending.wait()
            torch.cuda._sleep(200_000)
            actual.append((turn % 4, decoded.images.clone()))
            del decoded
    torch.cuda.synchronize()
    for turn, (number, images) in enumerate(actual):
        assert torch.equal(images.cpu(), expected[number]), f"request {turn}"


def test_an_awaited_response_is_ready_on_its_tasks_stream(mini: str) -> None:
    originals = encoded(mini)
    host = Decoder(**SERVING)
    expected = [host.decode(originals[first : first + 16]).images.clone() for first in (0, 16, 32, 48)]
    decoder, side = Decoder(device="cuda", **SERVING), torch.cuda.Stream()

    async def ask(turn: int) -> Any:
        pending = decoder.submit(originals[16 * (turn % 4) : 16 * (turn % 4) + 16])
        torch.cuda._sleep(200_000)
        decoded = await pending
        with torch.cuda.stream(side):
            side.wait_stream(torch.cuda.current_stream())
            return decoded.images.clone()

    async def serve() -> list[Any]:
        return await asyncio.wait_for(asyncio.gather(*(ask(turn) for turn in range(64))), 60)

    answers = asyncio.run(serve())
    torch.cuda.synchronize()
    for turn, images in enumerate(answers):
        assert torch.equal(images.cpu(), expected[turn % 4]), f"request {turn}"


def test_a_decoder_does_not_disturb_graph_captures(mini: str) -> None:
    """Captures graphs while responses arrive."""
    originals = encoded(mini)
    expected = Decoder(**SERVING).decode(originals[:16]).images.clone()
    decoder = Decoder(device="cuda", **SERVING)
    static = torch.zeros(1 << 20, device="cuda")
    for _ in range(100):
        pending = [decoder.submit(originals[:16]) for _ in range(3)]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(20):
                static.add_(1)
        graph.replay()
        for answer in pending:
            assert torch.equal(answer.wait().images.cpu(), expected)
    graph = torch.cuda.CUDAGraph()
    pending = decoder.submit(originals[:16])
    with torch.cuda.graph(graph):
        static.add_(1)
        for _ in range(2):
            with pytest.raises(WarpfeedError) as raised:
                pending.wait()
            assert raised.value.kind == "capturing"
    assert torch.equal(pending.wait().images.cpu(), expected), "the response must stay available after the capture"
    assert torch.equal(decoder.decode(originals[:16]).images.cpu(), expected)


def test_a_replay_is_ordered_on_the_consuming_stream(packed: str) -> None:
    expected = sums(Loader(packed, **OPTIONS), 2)
    for turn in range(20):
        loader, side = Loader(packed, device="cuda", **OPTIONS), torch.cuda.Stream()
        replay = loader.replay(2)
        torch.cuda._sleep(2_000_000)
        with torch.cuda.stream(side):
            images, labels = next(replay)
            actual = images.to(torch.int64).sum(), labels.sum()
            del images, labels
        side.synchronize()
        assert (int(actual[0]), int(actual[1])) == expected[0], f"turn {turn}"
        del replay


def test_the_loader_waits_for_a_self_synchronizing_consumer(packed: str) -> None:
    """With DLPack's stream -1, the memory is reused only after all work on the device has
    finished."""
    expected = sums(Loader(packed, **OPTIONS), 40)
    loader, side, actual = Loader(packed, device="cuda", output="dlpack", **OPTIONS), torch.cuda.Stream(), []
    for batch in batches_of(loader, 40):
        side.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(side):
            images = torch.utils.dlpack.from_dlpack(batch.images.__dlpack__(stream=-1))
            labels = torch.utils.dlpack.from_dlpack(batch.labels.__dlpack__(stream=-1))
            del batch
            torch.cuda._sleep(2_000_000)
            actual.append((images.to(torch.int64).sum(), labels.sum()))
            del images, labels
    torch.cuda.synchronize()
    assert [(int(a), int(b)) for a, b in actual] == expected


@pytest.mark.parametrize("copy", [None, True])
def test_held_dlpack_batches_are_copies(packed: str, copy: bool | None) -> None:
    loader = Loader(packed, device="cuda", output="dlpack", copy=copy, held_batches_timeout=2, **OPTIONS)
    batches = list(batches_of(loader, 40))
    assert len({batch.images.data_ptr() for batch in batches}) == 40
    for batch, (images, labels) in zip(batches, batches_of(Loader(packed, **OPTIONS), 40), strict=True):
        # DLPack exports the memory order (N, H, W, C), whereas the torch tensor is (N, C, H, W).
        assert torch.equal(torch.from_dlpack(batch.images).cpu(), images.permute(0, 2, 3, 1))
        assert torch.equal(torch.from_dlpack(batch.labels).cpu(), labels)


def test_jax_on_a_gpu_may_hold_every_batch(packed: str) -> None:
    jax = need("jax")
    try:
        jax.devices("gpu")
    except RuntimeError:
        missing("jax-gpu", "jax finds no GPU")
    loader = Loader(packed, device="cuda", output="dlpack", held_batches_timeout=2, **OPTIONS)
    held = [jax.dlpack.from_dlpack(batch.images) for batch in batches_of(loader, 40)]
    host = Loader(packed, **{**OPTIONS, "output": "numpy"})
    for images, (expected, _) in zip(held, batches_of(host, 40), strict=True):
        assert np.array_equal(np.asarray(images), expected)


def test_a_decoder_copies_if_all_batches_are_held(mini: str) -> None:
    originals = encoded(mini)
    expected = Decoder(**SERVING).decode(originals[:16]).images.clone()
    for output in ("torch", "dlpack"):
        decoder = Decoder(device="cuda", output=output, layout="nchw", held_batches_timeout=2, **SERVING)
        batches = [decoder.decode(originals[:16]) for _ in range(40)]
        assert all(torch.equal(torch.from_dlpack(decoded.images).cpu(), expected) for decoded in batches)
