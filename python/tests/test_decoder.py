"""Promise: a decoder gives the pixels of a loader, reports bad pictures one by one, serves several
threads and an event loop, and leaves batches valid when it is closed."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import numpy as np
import pytest
from warpfeed import Augment, Decoder, Loader, WarpfeedError

OPTIONS = {"augment": Augment.eval(72, 64), "dtype": "f32", "normalize": "imagenet", "output": "numpy"}


def files(mini: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(Path(mini).rglob("*")) if path.is_file()]


def expected(mini: str) -> np.ndarray:
    return np.concatenate([images.copy() for images, _ in Loader(mini, batch_size=16, **OPTIONS)])


def test_a_decoder_gives_the_pixels_of_a_loader(mini: str) -> None:
    pictures, pixels = files(mini), expected(mini)
    decoder = Decoder(max_batch=16, **OPTIONS)
    assert decoder.max_batch == 16 and decoder.memory_plan()["slots"] > 0
    for first, count in [(0, 16), (16, 1), (17, 7), (24, 16), (40, 16)]:
        decoded = decoder.decode(pictures[first : first + count])
        assert len(decoded) == count and not decoded.errors
        assert np.array_equal(decoded.images, pixels[first : first + count])
    assert decoder.stats()["prepared"] >= 56


def test_a_bad_picture_is_an_error_at_its_place(mini: str) -> None:
    pictures, pixels = files(mini), expected(mini)
    decoder = Decoder(max_batch=4, **OPTIONS)
    decoded = decoder.decode([pictures[0], b"no picture", bytearray(pictures[2]), pictures[3][:100]])
    assert set(decoded.errors) == {1, 3} and "errors" in repr(decoded)
    assert isinstance(decoded.errors[1], WarpfeedError) and decoded.errors[1].kind == "decode"
    assert str(decoded.errors[3]).startswith("sample 3: decode: ")
    assert np.array_equal(decoded.images[[0, 2]], pixels[[0, 2]])
    black = -np.array([0.485, 0.456, 0.406], np.float32) / np.array([0.229, 0.224, 0.225], np.float32)
    assert np.allclose(decoded.images[1], black, atol=1e-6) and np.allclose(decoded.images[3], black, atol=1e-6)
    for wrong in ([], pictures[:5]):
        with pytest.raises(WarpfeedError, match="the decoder takes from 1 to 4"):
            decoder.decode(wrong)
    with pytest.raises(TypeError):
        decoder.decode(["a text"])  # type: ignore[list-item]


def test_several_threads_use_one_decoder(mini: str) -> None:
    pictures, pixels = files(mini), expected(mini)
    decoder = Decoder(max_batch=8, prefetch=6, **OPTIONS)
    wrong = []

    def ask(thread: int) -> None:
        for turn in range(20):
            places = [(7 * thread + 3 * turn + i) % len(pictures) for i in range(1 + turn % 8)]
            if not np.array_equal(decoder.decode(pictures[i] for i in places).images, pixels[places]):
                wrong.append((thread, turn))

    threads = [threading.Thread(target=ask, args=[n]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_answers_are_awaited(mini: str) -> None:
    pictures, pixels = files(mini), expected(mini)

    async def serve(decoder: Decoder) -> None:
        pending = [decoder.submit(pictures[8 * n : 8 * n + 8]) for n in range(4)]
        for number, answer in enumerate(pending):
            assert np.array_equal((await answer).images, pixels[8 * number : 8 * number + 8])
            with pytest.raises(WarpfeedError, match="taken before"):
                answer.wait()

    with Decoder(max_batch=8, **OPTIONS) as decoder:
        asyncio.run(serve(decoder))


def test_a_decoder_that_is_closed_leaves_its_batches(mini: str) -> None:
    pictures, pixels = files(mini), expected(mini)
    decoder = Decoder(max_batch=8, copy=False, **OPTIONS)
    kept, pending = decoder.decode(pictures[:8]), [decoder.submit(pictures[8:16]) for _ in range(5)]
    decoder.close()
    assert np.array_equal(kept.images, pixels[:8])
    with pytest.raises(WarpfeedError, match="the decoder is closed"):
        decoder.decode(pictures[:1])
    for answer in pending:
        try:
            assert np.array_equal(answer.wait().images, pixels[8:16])
        except WarpfeedError as error:
            assert "the decoder was dropped" in str(error)


def test_on_a_device_it_is_ordered_on_the_current_stream(mini: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA device")
    pictures, pixels = files(mini), expected(mini)
    decoder = Decoder(max_batch=16, device="cuda", layout="nhwc", **{**OPTIONS, "output": "torch"})
    side = torch.cuda.Stream()
    for turn in range(60):
        first = 16 * (turn % 3)
        with torch.cuda.stream(side if turn % 2 else torch.cuda.current_stream()):
            decoded = decoder.decode(pictures[first : first + 16])
            assert decoded.images.is_cuda
            found = decoded.images.clone()
            del decoded
            assert np.array_equal(found.cpu().numpy(), pixels[first : first + 16])
    assert decoder.stats()["decoded_on_device"] > 0
