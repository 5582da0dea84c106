"""Tests that each Python example of the pages and docstrings delivers the same batches with one
worker and with three, and leaks no threads, file descriptors or memory in the second run. Each
loader in a global variable delivers at least 200 batches, or ``WARPFEED_EXAMPLE_BATCHES``. The
garbage collector is disabled."""

from __future__ import annotations

import ast
import contextlib
import re
import socket
import subprocess
import sys
import textwrap
import time
import types
from collections import Counter
from pathlib import Path
from typing import Iterator

import pytest
import warpfeed
from conftest import MINI, missing, need, tell
from documented import (
    BATCHES, BLOCKS, DOCSTRINGS, Block, Left, made_small, program, resident, run, uncollected,
)  # fmt: skip
from documented_sets import WRITERS, jpegs

EVERY = [*BLOCKS, *DOCSTRINGS]

#: Code to run before an example that contains the key.
BEFORE = {
    "right = model(images).argmax(1) == labels": """
        import torch
        torch.distributed.init_process_group("gloo")
        model = lambda images: images.float().mean((2, 3))
    """,
    "loss = torch.nn.functional.cross_entropy(model(images), labels)": """
        import torch
        head = torch.nn.Linear(3, 4, device="cuda" if torch.cuda.is_available() else "cpu")
        model, optimizer = lambda images: head(images.float().mean((2, 3))), torch.optim.SGD(head.parameters(), 0.01)
    """,
    "for epoch in range(first_epoch, 90)": "first_epoch, first_batch = 1, 3",
    "shard((*batch, batch.valid), sharding)": """
        import jax, warpfeed.jax
        sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        loader = warpfeed.Loader("val", batch_size=3, last_batch="pad", output="numpy", rank=0, world_size=1)
        state, predict = None, lambda state, images: images.sum((1, 2, 3)) % 4
    """,
    "lightning.Trainer(max_epochs=90)": """
        import lightning
        import warpfeed.lightning
        from documented_models import module
        model = module()
    """,
    "trainer = Trainer(model=model, args=args": """
        import transformers
        import warpfeed.hf
        from documented_models import classifier
        model = classifier()
        args = transformers.TrainingArguments(
            "runs", num_train_epochs=26, per_device_train_batch_size=3, save_strategy="epoch", save_total_limit=1,
            report_to=[], use_cpu=True, disable_tqdm=True,
        )
        # Create a run that was stopped after its first epoch.
        class First(warpfeed.hf.Loaders, transformers.Trainer): pass
        class Stop(transformers.TrainerCallback):
            def on_epoch_end(self, args, state, control, **_): control.should_training_stop = True
        First(model=model, args=args, callbacks=[Stop()], train_dataset=warpfeed.Loader(
            "train", batch_size=3, shuffle=True, seed=42, augment=warpfeed.Augment.train(32), normalize="imagenet", drop_last=True,
            collate=warpfeed.collate.hf,
        )).train()
        args.save_strategy = transformers.trainer_utils.SaveStrategy.NO
    """,
    "for text in texts]": "texts = ['x' * length for length in (17, 300, 80)]",
    "upload.read() for upload in uploads": """
        import io
        model, uploads = lambda images: images, [io.BytesIO(IMAGES[0]), io.BytesIO(b"no image")]
    """,
    "asyncio.wrap_future": """
        import asyncio
        import torch
        uploads, model = IMAGES[:3], lambda images: images.float().mean((2, 3))
        decoder = warpfeed.Decoder(max_batch=8, augment=Augment.eval(36, 32), normalize="imagenet", output="torch")
    """,
    'boxes = model(batch["image"])': """
        import numpy as np
        def model(images):
            boxes = np.ones((len(images), 2, 4), np.float32)
            return boxes if isinstance(images, np.ndarray) else images.new_tensor(boxes).float()
    """,
    "warpfeed.pack(my_dataset": """
        import types
        class Data:
            def __len__(self): return len(IMAGES)
            def __getitem__(self, index): return IMAGES[index], 0
        my_dataset, bar = Data(), types.SimpleNamespace(n=0, update=lambda n: None)
    """,
    "warpfeed.Loader(data, fields=": "import functools; data = 'coco/annotations/instances_train2017.json'",
    "mesh = jax.make_mesh": "import jax, warpfeed.jax; step = lambda state, images, labels: images.sum(); state = None",
    "import ray.train": """
        import types, sys
        train = types.ModuleType("ray.train")
        def get_context(): raise RuntimeError("no worker of Ray Train")
        train.get_context, train.get_checkpoint, train.report = get_context, lambda: None, lambda *_, **__: None
        train.Checkpoint = types.SimpleNamespace(from_directory=lambda folder: folder)
        sys.modules["ray"], sys.modules["ray.train"] = types.ModuleType("ray"), train
        sys.modules["ray"].train = train
    """,
}  # fmt: skip

#: Code to run after an example that contains the key.
AFTER = {
    "import ray.train": "train_loop_per_worker({})",
    "def on_submitit(executor)": """
        [pack(part) for part in range(PARTS)]
        warpfeed.merge("/shared/packed/train.tar")
        loader = warpfeed.Loader("/shared/packed/train.tar", batch_size=3, augment=SMALL)
    """,
    "async def answer(uploads": "[await answer(IMAGES[:3]) for _ in range(200)]",
    "report = warpfeed.pack": "loader = warpfeed.Loader('mini.lmdb', batch_size=3, augment=SMALL)",
    "warpfeed.pack(my_dataset": "loader = warpfeed.Loader('train.lmdb', batch_size=3, augment=SMALL)",
    'warpfeed.merge("train.tar")': "loader = warpfeed.Loader('train.tar', batch_size=3, augment=SMALL)",
    "start_http_server(": "REGISTRY.unregister(collector); server.shutdown(); server.server_close(); thread.join()",
    "part=(3, 64)": "loader = warpfeed.Loader('s3://bucket/packed/train.tar', batch_size=3)",
}



def additional_code(code_by_part: dict[str, str], block: Block) -> str:
    return "\n".join(textwrap.dedent(text) for part, text in code_by_part.items() if part in block.code)


def text_of(block: Block, folder: Path) -> tuple[str, str]:
    """Returns the code to run before the block, and the block with the code to run after it."""
    before, code = additional_code(BEFORE, block), f"{made_small(block)}\n{additional_code(AFTER, block)}"
    if block.is_docstring:
        before = f"from warpfeed import *\n{before}"
    if "init_process_group()" in code:
        code = code.replace("init_process_group()", "init_process_group('gloo')")
    if not cuda():
        code = code.replace('"cuda"', '"cpu"')
    code = code.replace('if __name__ == "__main__":', 'if __name__ == "__main__" or "DRIVEN" in globals():')
    return before, re.sub(r"([\"'])/(shared|local)/", rf"\1{folder}/\2/", code)


def cuda() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def libraries(code: str) -> set[str]:
    """Returns the modules from other projects that a program imports."""
    names = set()
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
    for node in ast.walk(compile(code, "example", "exec", flags)):
        results = [name.name for name in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            results.append(node.module)
        for name in results:
            top, _, module = name.partition(".")
            if top == "warpfeed" and module in ("hf", "jax", "lightning", "ray"):
                names.add({"hf": "transformers"}.get(module, module))
            elif top not in sys.stdlib_module_names and top not in ("warpfeed", "numpy", "documented_models"):
                names.add(top)
    return names


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns an empty folder. `stock` writes each dataset there when an example first refers to
    it."""
    return tmp_path_factory.mktemp("shop")


def stock(shop: Path, folder: Path, code: str) -> None:
    """Makes the datasets that the code refers to available in `folder`."""
    for name, write in WRITERS.items():
        if not re.search(rf"[\"'/]{re.escape(name)}[\"'/]", code) or re.search(
            rf"(?:pack\([^,]*, |\.to\()\"{re.escape(name)}\"", code
        ):
            continue
        if not (shop / name).exists():
            write(shop / name)
        shared = f"/shared/{name}" in code
        target = folder / "shared" / name if shared else folder / name
        target.parent.mkdir(exist_ok=True)
        target.symlink_to(shop / name)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Runs an S3-compatible server with the datasets of the examples. Yields the environment
    variables that select it."""
    need("moto")
    boto3 = need("boto3")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("store")
    WRITERS["train"](folder / "train")
    warpfeed.pack(MINI, folder / "train-000.tar")
    warpfeed.pack(MINI, folder / "train-001.tar")
    server = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", str(port)], stdout=-3, stderr=-3)
    try:
        url = f"http://127.0.0.1:{port}"
        names = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
        client = boto3.client("s3", endpoint_url=url, **names)
        answers(port)
        client.create_bucket(Bucket="bucket")
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            client.upload_file(str(file), "bucket", file.relative_to(folder).as_posix())
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
        yield {"AWS_ENDPOINT_URL": url, **keys}
    finally:
        server.kill()
        server.wait()


def answers(port: int) -> None:
    """Waits until a server accepts connections."""
    for _ in range(300):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens at port {port}")


COVERED: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def covered() -> Iterator[None]:
    yield
    summary = ", ".join(f"{count} {what}" for what, count in sorted(COVERED.items()))
    tell(f"examples: {summary}")


def test_all_examples_are_collected_and_no_addition_is_stale() -> None:
    assert len(BLOCKS) >= 60 and len(DOCSTRINGS) >= 15
    for part in [*BEFORE, *AFTER]:
        assert any(part in block.code for block in EVERY), f"no example has {part!r}"


@pytest.mark.parametrize("block", EVERY, ids=repr)
def test_an_example_runs_with_one_and_three_workers(
    block: Block, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    before, code = text_of(block, tmp_path)
    if "torch.cuda" in code and not cuda():
        missing("cuda", "the example uses a device")
    for library in sorted(libraries(f"{before}\n{block.code}") - ({"ray"} if "import ray.train" in code else set())):
        need(library)
    if "s3://" in code:
        for name, value in request.getfixturevalue("store").items():
            monkeypatch.setenv(name, value)
    for name in ("ray", "ray.train"):
        if "import ray.train" in code:
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    if "distributed=True" in code:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        for name, value in {
            "RANK": 0,
            "WORLD_SIZE": 1,
            "LOCAL_RANK": 0,
            "LOCAL_WORLD_SIZE": 1,
            "MASTER_PORT": port,
        }.items():
            monkeypatch.setenv(name, str(value))
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    images = [content for content, *_ in jpegs()]
    digests = []
    monkeypatch.syspath_prepend(tmp_path)
    for workers in (1, 3):
        folder = tmp_path / f"with {workers}"
        folder.mkdir()
        before, code = text_of(block, folder)
        stock(shop, folder, f"{before}\n{code}")
        monkeypatch.chdir(folder)
        # The worker processes for an example's function import the example by this name.
        name = f"example_{workers}"
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
        module = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        names = module.__dict__
        names.update(DRIVEN=True, IMAGES=images, SMALL=warpfeed.Augment.eval(36, 32))
        exec(compile("import warpfeed\n" + before, f"before {block!r}", "exec"), names)
        left, used = Left.now(), resident()
        with uncollected():
            digests.append(run(program(block, workers, code), names, bool(re.search(r"\bepoch\b", code)), images))
            if "torch" in sys.modules and sys.modules["torch"].distributed.is_initialized():
                sys.modules["torch"].distributed.destroy_process_group()
            result = Left.at_most(left) if digests[1:] else left
        # Libraries start threads, open files and allocate memory in the first run.
        if digests[1:]:
            assert result.threads <= left.threads, "leaked threads"
            assert result.descriptors <= left.descriptors, "leaked descriptors"
            assert resident() - used < 64 << 20, "leaked memory"
    one, three = digests
    assert [len(seen) for seen in one] == [len(seen) for seen in three]
    assert one == three, "the batches depend on the number of workers"
    # A loader that the example replaces may have delivered fewer batches.
    assert not one or max(map(len, one)) >= BATCHES
    COVERED.update({"examples": 1, "loaders and decoders": len(one), "batches": sum(map(len, one + three))})
