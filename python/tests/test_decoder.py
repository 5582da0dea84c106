"""Tests that a decoder returns the pixels of a loader, reports bad images individually, and serves
several threads and an event loop, and that batches stay valid after it is closed."""

from __future__ import annotations

import asyncio
import concurrent.futures
import io
import mmap
import os
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import bmp, missing, need, needs, ran
from warpfeed import Augment, Decoder, Loader, WarpfeedError

OPTIONS = {"augment": Augment.eval(72, 64), "dtype": "f32", "normalize": "imagenet", "output": "numpy"}


def files(mini: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(Path(mini).rglob("*")) if path.is_file()]


def expected(mini: str) -> np.ndarray:
    return np.concatenate([images.copy() for images, _ in Loader(mini, batch_size=16, **OPTIONS)])


def test_a_decoder_gives_the_pixels_of_a_loader(mini: str) -> None:
    originals, pixels = files(mini), expected(mini)
    decoder = Decoder(max_batch=16, **OPTIONS)
    assert decoder.max_batch == 16 and decoder.memory_plan()["slots"] > 0
    for first, count in [(0, 16), (16, 1), (17, 7), (24, 16), (40, 16)]:
        decoded = decoder.decode(originals[first : first + count])
        assert len(decoded) == count and not decoded.errors
        assert np.array_equal(decoded.images, pixels[first : first + count])
    assert decoder.stats()["prepared_samples"] >= 56


def test_a_bad_image_fails_at_its_position(mini: str) -> None:
    originals, pixels = files(mini), expected(mini)
    decoder = Decoder(max_batch=4, **OPTIONS)
    decoded = decoder.decode([originals[0], b"no image", bytearray(originals[2]), originals[3][:100]])
    assert set(decoded.errors) == {1, 3} and "errors" in repr(decoded)
    assert isinstance(decoded.errors[1], WarpfeedError) and decoded.errors[1].kind == "decode"
    assert str(decoded.errors[3]).startswith("sample 3: decode: ")
    assert np.array_equal(decoded.images[[0, 2]], pixels[[0, 2]])
    black = -np.array([0.485, 0.456, 0.406], np.float32) / np.array([0.229, 0.224, 0.225], np.float32)
    assert np.allclose(decoded.images[1], black, atol=1e-6) and np.allclose(decoded.images[3], black, atol=1e-6)
    for invalid in ([], originals[:5]):
        with pytest.raises(WarpfeedError, match="the decoder accepts 1 to 4"):
            decoder.decode(invalid)
    with pytest.raises(TypeError):
        decoder.decode(["a text"])  # type: ignore[list-item]


def test_several_threads_use_one_decoder(mini: str) -> None:
    originals, pixels = files(mini), expected(mini)
    decoder = Decoder(max_batch=8, max_in_flight=6, **OPTIONS)
    invalid = []

    def ask(thread: int) -> None:
        for turn in range(20):
            places = [(7 * thread + 3 * turn + i) % len(originals) for i in range(1 + turn % 8)]
            if not np.array_equal(decoder.decode(originals[i] for i in places).images, pixels[places]):
                invalid.append((thread, turn))

    threads = [threading.Thread(target=ask, args=[n]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not invalid


def test_responses_can_be_awaited(mini: str) -> None:
    originals, pixels = files(mini), expected(mini)

    async def serve(decoder: Decoder) -> None:
        pending = [decoder.submit(originals[8 * n : 8 * n + 8]) for n in range(4)]
        for number, answer in enumerate(pending):
            assert np.array_equal((await answer).images, pixels[8 * number : 8 * number + 8])
            with pytest.raises(WarpfeedError, match="already been taken"):
                answer.wait()

    with Decoder(max_batch=8, **OPTIONS) as decoder:
        asyncio.run(serve(decoder))


def test_held_results_do_not_block_responses_in_any_order(mini: str) -> None:
    originals, pixels = files(mini), expected(mini)
    decoder = Decoder(max_batch=4, max_in_flight=3, held_batches_timeout=20, **OPTIONS)
    batches = [decoder.decode(originals[4 * n : 4 * n + 4]) for n in range(8)]
    pending = [decoder.submit(originals[4 * n : 4 * n + 4]) for n in range(3)]
    for number in (2, 0, 1):
        assert np.array_equal(pending[number].wait().images, pixels[4 * number : 4 * number + 4])
    for number, decoded in enumerate(batches):
        assert np.array_equal(decoded.images, pixels[4 * number : 4 * number + 4])


def test_batches_stay_valid_after_the_decoder_is_closed(mini: str) -> None:
    originals, pixels = files(mini), expected(mini)
    decoder = Decoder(max_batch=8, copy=False, **OPTIONS)
    decoded, pending = decoder.decode(originals[:8]), [decoder.submit(originals[8:16]) for _ in range(5)]
    decoder.close()
    assert np.array_equal(decoded.images, pixels[:8])
    with pytest.raises(WarpfeedError, match="the decoder is closed"):
        decoder.decode(originals[:1])
    for answer in pending:
        try:
            assert np.array_equal(answer.wait().images, pixels[8:16])
        except WarpfeedError as error:
            assert "the decoder was dropped" in str(error)


def test_a_device_batch_is_ready_on_the_current_stream(mini: str) -> None:
    torch = need("torch")
    if not torch.cuda.is_available():
        missing("cuda", "torch finds no device")
    originals, pixels = files(mini), expected(mini)
    decoder = Decoder(max_batch=16, device="cuda", layout="nhwc", **{**OPTIONS, "output": "torch"})
    side = torch.cuda.Stream()
    for turn in range(60):
        first = 16 * (turn % 3)
        with torch.cuda.stream(side if turn % 2 else torch.cuda.current_stream()):
            decoded = decoder.decode(originals[first : first + 16])
            assert decoded.images.is_cuda
            actual = decoded.images.clone()
            del decoded
            assert np.array_equal(actual.cpu().numpy(), pixels[first : first + 16])
    assert decoder.stats()["images_sent_to_device"] > 0


def small(count: int) -> list[bytes]:
    """Returns `count` small images, each of a different color."""
    return [bmp(8, 8, (n % 256, n // 256, 7)) for n in range(count)]


def colors(decoded: Any) -> list[tuple[int, int, int]]:
    return [tuple(int(value) for value in original[0, 0]) for original in np.asarray(decoded.images)]


SMALL: dict[str, Any] = {"augment": Augment.resize(8, 8), "output": "numpy", "max_batch": 4}


def all_held(**options: Any) -> tuple[Decoder, list[Any]]:
    """Returns a decoder, and batches that use all of its slots."""
    decoder = Decoder(**{**SMALL, "max_in_flight": 1, "copy": False, **options})
    return decoder, [decoder.decode(small(1)) for _ in range(decoder.memory_plan()["slots"])]


def tasks() -> int:
    """Returns the number of threads of this process, on Linux including Rust threads."""
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else threading.active_count()


def test_awaiting_many_responses_needs_no_thread_per_request(mini: str) -> None:
    originals, pixels = files(mini), expected(mini)

    async def serve(decoder: Decoder) -> None:
        await decoder.submit(originals[:1])
        before, most = tasks(), 0

        async def ask(number: int) -> Any:
            nonlocal most
            answer = await decoder.submit(originals[number % 48 : number % 48 + 16])
            most = max(most, tasks())
            return answer

        answers = await asyncio.wait_for(asyncio.gather(*(ask(number) for number in range(64))), 120)
        assert most <= before, "a request must not need a thread"
        for number, answer in enumerate(answers):
            assert np.array_equal(answer.images, pixels[number % 48 : number % 48 + 16])

    with Decoder(max_batch=16, held_batches_timeout=5, **OPTIONS) as decoder:
        asyncio.run(serve(decoder))


def test_5000_live_results_stay_within_the_memory_plan() -> None:
    code = """
        import asyncio, json, resource, sys
        sys.path.insert(0, sys.argv[1])
        from conftest import bmp
        from warpfeed import Augment, Decoder
        COUNT = 5000
        decoder = Decoder(max_batch=1, augment=Augment.resize(64, 64), output="numpy", max_queued=COUNT, num_workers=2)
        plan = decoder.memory_plan()
        async def serve():
            responses = [decoder.submit([bmp(8, 8, (n % 256, n // 256, 7))]) for n in range(COUNT)]
            return await asyncio.gather(*responses)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        held = asyncio.run(serve())
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before
        for n, decoded in enumerate(held):
            assert tuple(decoded.images[0, 5, 5]) == (n % 256, n // 256, 7), n
        assert decoder.memory_plan() == plan
        # Exclude the program's copies, and 16 KiB per result for Python's own objects.
        print(grown - COUNT * (64 * 64 * 3 + (16 << 10)), plan["host_bytes"] + plan["scratch_bytes"])
        """
    beyond, plan = map(int, ran(code, str(Path(__file__).parent), timeout=300).split())
    assert beyond < plan


def test_a_task_that_is_canceled_cancels_its_request() -> None:
    decoder, held = all_held()
    prepared = decoder.stats()["prepared_samples"]

    async def serve() -> None:
        pending = [decoder.submit(small(4)) for _ in range(20)]
        for answer in pending:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(answer, 0.01)
        with pytest.raises(WarpfeedError, match="the request was canceled"):
            await pending[3]
        task = asyncio.ensure_future(waited(decoder.submit(small(4))))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def waited(pending: Any) -> Any:
        return await pending

    asyncio.run(serve())
    answers = [decoder.submit(small(4)) for _ in range(20)]
    answers[0].cancel()
    with pytest.raises(WarpfeedError, match="the request was canceled"):
        answers[0].wait()
    del answers
    held.clear()
    assert colors(decoder.decode(small(3))) == [(n, 0, 7) for n in range(3)]
    # Images of requests that had started before they were canceled may have been decoded.
    assert decoder.stats()["prepared_samples"] - prepared <= 3 + 2 * 4, "images of canceled requests were decoded"


def test_only_one_task_may_await_a_response() -> None:
    decoder, held = all_held()

    async def waited(pending: Any) -> Any:
        return await pending

    async def serve() -> None:
        pending = decoder.submit(small(1))
        first = asyncio.ensure_future(waited(pending))
        await asyncio.sleep(0.01)
        with pytest.raises(WarpfeedError, match="another task already awaits"):
            await pending
        held.clear()
        assert colors(await asyncio.wait_for(first, 30)) == [(0, 0, 7)]
        with pytest.raises(WarpfeedError, match="already been taken"):
            await pending

    asyncio.run(serve())


def test_closing_the_event_loop_early_is_harmless() -> None:
    decoder, held = all_held()
    loop = asyncio.new_event_loop()

    async def waited(pending: Any) -> Any:
        return await pending

    retained = decoder.submit(small(1))
    task = loop.create_task(waited(retained))
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    held.clear()
    assert colors(decoder.decode(small(2))) == [(0, 0, 7), (1, 0, 7)]
    del task


def test_a_full_queue_is_busy() -> None:
    decoder, held = all_held(max_queued=3)
    pending = []
    with pytest.raises(WarpfeedError, match="and max_queued is 3") as raised:
        while len(pending) < 20:
            pending.append(decoder.submit(small(2)))
            if len(pending) == 3:
                time.sleep(0.1)
    assert raised.value.kind == "busy" and 3 <= len(pending) < 8
    del pending[-1]
    pending.append(decoder.submit(small(2)))
    held.clear()
    for answer in pending:
        assert colors(answer.wait()) == [(0, 0, 7), (1, 0, 7)]
    with pytest.raises(WarpfeedError, match="max_queued"):
        Decoder(max_queued=0)


def test_any_bytes_like_object_is_an_image() -> None:
    decoder = Decoder(**SMALL)
    original = small(6)[5]
    array = np.frombuffer(original, np.uint8)
    for value in (original, bytearray(original), memoryview(original), array, np.repeat(array, 2)[::2], array.view(np.int8)):
        decoded = decoder.decode([value])
        assert not decoded.errors and colors(decoded) == [(5, 0, 7)], type(value)
    for invalid in (array.astype(np.float32), [1, 2], 7, "text"):
        with pytest.raises(TypeError, match="expected the bytes of an encoded image"):
            decoder.decode([invalid])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="a request is a list of images"):
        decoder.decode(original)  # type: ignore[arg-type]
    assert repr(decoder) == "Decoder(max_batch=4)"


def test_images_may_be_numpy_pillow_or_torch_pixels() -> None:
    decoder = Decoder(**SMALL)
    gray, color = np.full((8, 8), 9, np.uint8), np.full((8, 8, 3), (5, 0, 7), np.uint8)
    decoded = decoder.decode([gray, gray[:, :, None], color])
    assert not decoded.errors and colors(decoded) == [(9, 9, 9), (9, 9, 9), (5, 0, 7)]
    pillow = need("PIL.Image")
    assert colors(decoder.decode([pillow.fromarray(color), pillow.fromarray(gray)])) == [(5, 0, 7), (9, 9, 9)]
    torch = need("torch")
    tensor = torch.from_numpy(color).permute(2, 0, 1)
    assert colors(decoder.decode([tensor])) == [(5, 0, 7)]
    with pytest.raises(TypeError, match="expected uint8"):
        decoder.decode([tensor.float()])


def test_exif_rotates_a_pillow_image_like_its_bytes() -> None:
    pillow = need("PIL.Image")
    halves = np.repeat(np.array([[[250, 0, 0], [0, 0, 250]]], np.uint8), 8, axis=0).repeat(4, axis=1)
    exif, file = pillow.Exif(), io.BytesIO()
    exif[0x0112] = 3
    pillow.fromarray(halves).save(file, "PNG", exif=exif)
    decoder = Decoder(**SMALL)
    decoded = decoder.decode([file.getvalue(), pillow.open(file), pillow.fromarray(halves)])
    images = np.asarray(decoded.images)
    assert np.array_equal(images[0], images[1]) and not np.array_equal(images[0], images[2])


def test_paths_and_open_files_are_refused_with_what_to_pass(tmp_path: Path) -> None:
    decoder, path = Decoder(**SMALL), tmp_path / "a.bmp"
    path.write_bytes(small(6)[5])
    for value, advice in ((path, "read_bytes"), (str(path), "read_bytes"), (io.BytesIO(b""), r"image\.read\(\)")):
        with pytest.raises(TypeError, match=advice):
            decoder.decode([value])  # type: ignore[list-item]
    # `mmap` has both a buffer and a `read` method. The buffer takes precedence.
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert colors(decoder.decode([mapped])) == [(5, 0, 7)]  # type: ignore[list-item]


def test_an_image_that_is_too_large_is_rejected() -> None:
    decoder = Decoder(max_sample_bytes=1000, **SMALL)
    decoded = decoder.decode([small(1)[0], bytes(1001), bytearray(5000)])
    assert set(decoded.errors) == {1, 2}
    assert str(decoded.errors[1]) == "sample 1: source: the image has 1001 bytes, but max_sample_bytes is 1000"


@needs("fork", hasattr(os, "fork"))
def test_waiting_for_a_response_in_a_forked_child_fails() -> None:
    out = ran(
        """
        import os, signal, sys
        sys.path.insert(0, sys.argv[1])
        from conftest import bmp
        from warpfeed import Augment, Decoder, WarpfeedError
        decoder = Decoder(max_batch=1, augment=Augment.resize(8, 8), output="numpy", max_in_flight=1, copy=False)
        held = [decoder.decode([bmp(8, 8, (1, 2, 3))]) for _ in range(3)]
        pending = decoder.submit([bmp(8, 8, (1, 2, 3))])
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            for call in (pending.wait, lambda: decoder.submit([b""]), decoder.stats):
                try:
                    call()
                    os._exit(1)
                except WarpfeedError as e:
                    assert "do not survive fork; open it after forking" in str(e), e
            del pending, decoder, held
            os._exit(0)
        print(os.waitpid(child, 0)[1])
        held.clear()
        assert pending.wait().images[0, 0, 0, 0] == 1
        """,
        str(Path(__file__).parent),
    )
    assert out == "0\n"


def test_a_signal_handler_may_close_an_awaited_decoder() -> None:
    out = ran(
        """
        import signal, sys
        sys.path.insert(0, sys.argv[1])
        from conftest import bmp
        from warpfeed import Augment, Decoder, WarpfeedError
        decoder = Decoder(max_batch=1, augment=Augment.resize(8, 8), output="numpy", max_in_flight=1, copy=False)
        held = [decoder.decode([bmp(8, 8, (1, 2, 3))]) for _ in range(3)]
        signal.signal(signal.SIGALRM, lambda *_: decoder.close())
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            decoder.decode([bmp(8, 8, (1, 2, 3))])
        except WarpfeedError as e:
            print(e)
        """,
        str(Path(__file__).parent),
        timeout=60,
    )
    assert "the decoder was dropped" in out


def test_the_geometry_maps_boxes_back_to_each_image(mini: str) -> None:
    """The geometry equals that of a loader. For bad images, it contains no values from earlier
    requests."""
    from warpfeed import ConfigError, Geometry

    options: dict[str, Any] = {"augment": Augment.letterbox((48, 64)), "output": "numpy"}
    [batch] = Loader(mini, batch_size=64, fields={"geometry": Geometry()}, **options)
    originals = files(mini)
    decoder = Decoder(max_batch=8, geometry=True, max_in_flight=1, **options)
    for first in range(0, 64, 8):
        decoded = decoder.decode(originals[first : first + 8])
        assert np.array_equal(decoded.geometry, batch["geometry"][first : first + 8])
        assert np.array_equal(decoded.source_sizes, batch["geometry.size"][first : first + 8])
    wide = bmp(128, 32, (1, 2, 3))
    for _ in range(6):
        decoded = decoder.decode([wide, b"no image", wide[:80]])
        assert decoded.source_sizes.tolist() == [[32, 128], [0, 0], [0, 0]] and not decoded.geometry[1:].any()
        matrix = decoded.geometry[0]
        # The image fills the width; its lower right corner is at (64, 32).
        corner = matrix @ np.array([128, 32, 1], np.float32)
        assert corner.tolist() == [64, 32] and ((corner - matrix[:, 2]) / matrix[:, :2].diagonal()).tolist() == [128, 32]
    with pytest.raises(ConfigError, match="open it with geometry=True"):
        Decoder(**options).decode([wide]).geometry


def test_requests_are_batched_and_each_gets_its_results(mini: str) -> None:
    originals, pixels = files(mini), expected(mini)
    decoder = Decoder(max_batch=8, **OPTIONS)
    batches: list[int] = []

    def model(decoded: Any) -> list[Any]:
        batches.append(len(decoded))
        return [image.copy() for image in decoded.images]

    with decoder.dynamic_batcher(model, max_delay_ms=60_000) as batcher:
        places = [(0, 3), (3, 5), (8, 1), (9, 8), (17, 2), (19, 6)]
        futures = [batcher.submit(originals[first : first + count]) for first, count in places]
        for (first, count), future in zip(places[:5], futures[:5], strict=True):
            assert np.array_equal(future.result(60), pixels[first : first + count])
        # Full batches do not wait. The fifth request fits with the sixth.
        assert batches[:2] == [8, 1] and batches[2] == 8 and batches[3:] == [8]
        assert np.array_equal(futures[5].result(60), pixels[19:25])
    with pytest.raises(WarpfeedError, match="close was called"):
        batcher.submit([originals[0]])
    assert not decoder.decode([originals[0]]).errors, "the decoder must stay open"


def test_a_batch_that_is_not_full_starts_after_its_delay() -> None:
    with Decoder(max_batch=8, output="numpy").dynamic_batcher(lambda decoded: [0] * len(decoded), max_delay_ms=100) as batcher:
        for count in 1, 2:
            begin = time.monotonic()
            futures = [batcher.submit(small(1)) for _ in range(count)]
            # The upper bound is generous, because the machine may be busy.
            assert [future.result(10) for future in futures] == [[0]] * count
            assert time.monotonic() - begin >= 0.1


@pytest.mark.parametrize(
    "outputs", [lambda n: ([0.0] * n, [1.0] * n), lambda n: {"boxes": [0] * n, "scores": [1] * n}, lambda n: "ab", lambda n: {0, 1}]
)
def test_several_outputs_are_not_mistaken_for_two_images(outputs: Any) -> None:
    with Decoder(**SMALL).dynamic_batcher(lambda decoded: outputs(len(decoded)), max_delay_ms=0) as batcher:
        with pytest.raises(WarpfeedError, match=r"one result for each image; for several outputs, return list\(zip"):
            batcher.submit(small(2)).result()


def test_several_outputs_are_zipped_to_one_result_per_image() -> None:
    with Decoder(**SMALL).dynamic_batcher(lambda decoded: list(zip("ab", [1, 2])), max_delay_ms=0) as batcher:
        assert batcher.submit(small(2)).result() == [("a", 1), ("b", 2)]


def test_dropped_batcher_results_keep_no_batch_alive(mini: str) -> None:
    original, retained = files(mini)[0], []

    def model(decoded: Any) -> list[Any]:
        retained.append(weakref.ref(decoded))
        return [(decoded, image) for image in decoded.images]

    # Request more batches than the decoder has slots.
    with Decoder(max_batch=4, max_in_flight=1, **OPTIONS).dynamic_batcher(model, max_delay_ms=0) as batcher:
        for _ in range(8):
            assert len(batcher.submit([original]).result(60)) == 1
            deadline = time.monotonic() + 60
            while retained[-1]() is not None:
                assert time.monotonic() < deadline
                time.sleep(0.001)


def test_a_bad_request_fails_alone_and_errors_are_routed(mini: str) -> None:
    originals = files(mini)
    decoder = Decoder(max_batch=8, **OPTIONS)
    with decoder.dynamic_batcher(lambda decoded: ["seen"] * len(decoded), max_delay_ms=200) as batcher:
        good, invalid = batcher.submit(originals[:2]), batcher.submit([b"no image", originals[3]])
        with pytest.raises(TypeError):
            batcher.submit(["text"])  # type: ignore[list-item]
        assert good.result(60) == ["seen"] * 2
        error, result = invalid.result(60)
        assert isinstance(error, WarpfeedError) and error.kind == "decode" and result == "seen"
        for request in ([], originals[:9]):
            with pytest.raises(WarpfeedError, match="the decoder accepts 1 to 8"):
                batcher.submit(request)
    for f, text in [(lambda decoded: 1 / 0, "division"), (lambda decoded: [1], "1 results for 2"), (len, "'int' for 2")]:
        with decoder.dynamic_batcher(f, max_delay_ms=0) as batcher, pytest.raises(Exception, match=text):
            batcher.submit(originals[:2]).result(60)
    batcher = decoder.dynamic_batcher(lambda decoded: [0] * len(decoded), max_delay_ms=60_000)
    one, other = batcher.submit(originals[:1]), batcher.submit(originals[:1])
    assert one.cancel() and concurrent.futures.wait([one], 60).done == {one}
    batcher.close()
    assert other.result(60) == [0]
    few = Decoder(max_batch=8, max_queued=1, **OPTIONS)
    with few.dynamic_batcher(lambda decoded: [0] * len(decoded), max_delay_ms=60_000) as batcher:
        waiting = batcher.submit(originals[:1])
        with pytest.raises(WarpfeedError, match="max_queued is 1") as busy:
            batcher.submit(originals[:1])
        assert busy.value.kind == "busy" and waiting.cancel()
        last = batcher.submit(originals[:1])
    assert last.result(60) == [0], "closing must start the last batch"
    with few.dynamic_batcher(lambda decoded: [0] * len(decoded), max_delay_ms=0) as batcher:
        few.close()
        with pytest.raises(WarpfeedError, match="requests are no longer accepted: .* the decoder was closed"):
            batcher.submit(originals[:1]).result(60)
    with pytest.raises(WarpfeedError, match="max_delay_ms=-1"):
        decoder.dynamic_batcher(len, max_delay_ms=-1)
    with pytest.raises(TypeError, match="max_delay_ms='5': expected a number of milliseconds"):
        decoder.dynamic_batcher(len, max_delay_ms="5")  # type: ignore[arg-type]

    async def awaited() -> Any:
        with decoder.dynamic_batcher(lambda decoded: [7] * len(decoded), max_delay_ms=1) as batcher:
            return await asyncio.wrap_future(batcher.submit(originals[:3]))

    assert asyncio.run(awaited()) == [7, 7, 7]
