"""Compares mixtures with changing proportions with a reference that works on plain lists. The runs
stop at random batches, and resume on one to three ranks. Also tests changing weights, batch sizes
and augmentations per dataset, and zipped datasets.
"""

from __future__ import annotations

import functools
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warpfeed

from conftest import need
from naive import active_values, mixed, dataset_seed, shares_at, shuffled


class Rows:
    def __init__(self, count: int, first: int = 0) -> None:
        self.count, self.first = count, first

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x.npy": np.array([self.first + index], np.int64)}


def loader(data: Any, **options: Any) -> warpfeed.Loader:
    fields = {"x": warpfeed.NdArray("i64", [1])}
    return warpfeed.Loader(data, drop_field=["image", "label"], fields=fields, output="numpy", num_workers=1, **options)


def delivered(make: Any, epochs: int, rng: random.Random, change: Any = None) -> list[int]:
    """Returns the samples of a run that repeatedly stops after a few batches and resumes on one to
    three ranks."""
    results: list[int] = []
    state: Any = None
    step = 0
    while True:
        world = rng.randint(1, 3)
        ranks = [make(rank=rank, world_size=world, prefetch=rng.randint(1, 4), resume=state) for rank in range(world)]
        stop = step + rng.randint(1, 12)
        over = False
        while step < stop and not over:
            if ranks[0].epoch >= epochs:
                over = True
                break
            epoch = ranks[0].epoch
            iterators = [iter(rank) for rank in ranks]
            while step < stop:
                batches: list[Any] = [next(iterator, None) for iterator in iterators]
                if batches[0] is None:
                    break
                results += [id for batch in batches for id, valid in zip(batch.ids, batch.valid, strict=True) if valid]
                step += 1
                if change is not None:
                    for rank in ranks:
                        change(rank, epoch, batches[0].batch_index)
        states = [json.dumps(rank.state_dict()) for rank in ranks]
        assert len(set(states)) == 1, "the states of the ranks differ"
        state = json.loads(states[0])
        for rank in ranks:
            rank.close()
        if over:
            return results


@pytest.mark.parametrize("number", range(int(os.environ.get("WARPFEED_MIXTURES", "12"))))
def test_a_mixture_equals_a_list_that_is_built_draw_by_draw(number: int) -> None:
    rng = random.Random(number)
    counts = [rng.randint(8, 40) for _ in range(rng.randint(1, 4))]
    batch, round_, seed = rng.randint(3, 7), rng.randint(15, 40), rng.getrandbits(64)
    single_pass = [k for k in range(len(counts)) if rng.random() < 0.2 and counts[k] >= batch]
    single_dataset = rng.random() < 0.3
    unit = batch if single_dataset else 1

    def any_shares() -> list[float]:
        # No share is 0, so that the length of the run does not change.
        return [float(rng.randint(1, 4)) for _ in counts]

    total = sum(counts) // unit * unit
    steps = -(-total // batch)
    first, schedule, values, end = any_shares(), [], [], 0
    for _ in range(rng.randint(0, 2)):
        start, new = end + rng.randint(0, 60), any_shares()
        curve: Any = rng.choice(["linear", "cosine"])
        if rng.random() < 0.5:
            step = start // total * steps + start % total // batch + 1
            start = end = step // steps * total + step % steps * batch
            values.append(warpfeed.MixtureChange(new, step=step))
        else:
            end = start + rng.randint(1, 400)
            values.append(warpfeed.MixtureChange(new, sample=(start, end), curve=curve))
        schedule.append((start, end, curve, new))
    calls: list[tuple[int, list[float]]] = []
    planned = {rng.randint(0, 3 * steps): (any_shares(), rng.randint(0, 5)) for _ in range(rng.randint(0, 3))}

    def make(**options: Any) -> warpfeed.Loader:
        parts = [(Rows(count), share) for count, share in zip(counts, first, strict=True)]
        data = warpfeed.Mixture(
            parts, schedule=values, draws_per_round=round_, single_pass=single_pass, single_dataset_batches=single_dataset
        )
        return loader(data, seed=seed, global_batch_size=batch, **options)

    def change(rank: warpfeed.Loader, epoch: int, number: int) -> None:
        step = epoch * steps + number
        if step in planned:
            shares, after = planned[step]
            rank.set_mixture(shares, after_batches=after)
            index = step + 1 + after
            calls.append((index // steps * total + index % steps * batch, shares))

    result = delivered(make, 3, rng, change)

    def shares(now: int) -> list[float]:
        return active_values(calls, now) or shares_at(now, first, schedule, round_ * unit)

    def order(dataset: int, number: int) -> list[int]:
        samples = shuffled(counts[dataset], dataset_seed(seed, dataset), number)
        return [sum(counts[:dataset]) + sample for sample in samples]

    orders = [functools.partial(order, dataset) for dataset in range(len(counts))]
    limits = [count // unit if k in single_pass else None for k, count in enumerate(counts)]
    assert result == mixed(orders, limits, shares, seed, round_, unit, 3 * total)


def test_changed_weights_apply_from_the_stated_batch_on() -> None:
    def make(weights: Any = None, **options: Any) -> warpfeed.Loader:
        return loader(Rows(60), weights=weights or [1.0] * 60, seed=4, global_batch_size=9, **options)

    new = [float(index < 6) for index in range(60)]
    old_ids, new_ids = ([list(batch.ids) for batch in make(weights)] for weights in (None, new))
    changed = make(prefetch=4)
    results = []
    for batch in changed:
        results.append(list(batch.ids))
        if batch.batch_index == 1:
            assert changed.set_weights(np.array(new), after_batches=2) == (0, 4)
    assert results == old_ids[:4] + new_ids[4:]
    copy = pickle.loads(pickle.dumps(changed))
    assert json.dumps(copy.state_dict()) == json.dumps(changed.state_dict())
    assert [list(batch.ids) for batch in copy] == [list(batch.ids) for batch in changed]


TRAIN = """
import json, os, sys, time
import numpy as np
import warpfeed
from test_mixtures import Rows, loader

rank, world, folder, last = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
state, losses = None, [1.0, 1.0, 1.0]
if os.path.exists(f"{folder}/state"):
    state, losses = json.load(open(f"{folder}/state"))
parts = [(Rows(count), 1.0) for count in (40, 25, 60)]
data = warpfeed.Mixture(parts, draws_per_round=30)
train = loader(data, seed=8, global_batch_size=12, rank=rank, world_size=world, prefetch=3, resume=state)
step = 0
while train.epoch < 6:
    for batch in train:
        step = batch.epoch * len(train) + batch.batch_index
        ids = [id for id, valid in zip(batch.ids, batch.valid) if valid]
        with open(f"{folder}/{step}.{rank}.{world}.new", "w") as file:
            json.dump(ids, file)
        os.rename(f"{folder}/{step}.{rank}.{world}.new", f"{folder}/{step}.{rank}.{world}")
        # Compute the losses from the samples of all ranks, as after an all-gather.
        names = [f"{folder}/{step}.{other}.{world}" for other in range(world)]
        while not all(map(os.path.exists, names)):
            time.sleep(0.001)
        seen = [train.dataset_index(id) for name in names for id in json.load(open(name))]
        losses = [0.7 * loss + seen.count(part) % 4 for part, loss in enumerate(losses)]
        train.set_mixture([loss + 0.1 for loss in losses], after_batches=step % 3)
        if rank == 0:
            with open(f"{folder}/state.new", "w") as file:
                json.dump([train.state_dict(), losses], file)
            os.rename(f"{folder}/state.new", f"{folder}/state")
        if step == last:
            time.sleep(60)
"""


def batches_of(folder: Path) -> dict[int, list[int]]:
    """Returns the samples of each global batch that the last rank has recorded."""
    results: dict[int, list[int]] = {}
    for path in sorted(folder.glob("*.*.*")):
        step, rank, world = path.name.split(".")[:3]
        if path.name.endswith(".new") or not (folder / f"{step}.{int(world) - 1}.{world}").exists():
            continue
        if rank == "0":
            names = [folder / f"{step}.{other}.{world}" for other in range(int(world))]
            ids = [id for name in names for id in json.loads(name.read_text())]
            assert results.setdefault(int(step), ids) == ids
    return results


def test_two_killed_ranks_that_follow_losses_resume_on_one(tmp_path: Path) -> None:
    def start(folder: Path, world: int, last: int) -> list[subprocess.Popen[bytes]]:
        folder.mkdir(exist_ok=True)
        root = Path(__file__).resolve().parent
        paths = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": paths}
        command = [sys.executable, "-c", TRAIN]
        return [
            subprocess.Popen([*command, str(rank), str(world), str(folder), str(last)], env=environment, cwd=root)
            for rank in range(world)
        ]

    complete = start(tmp_path / "whole", 1, -1)
    killed = start(tmp_path / "killed", 2, 23)
    until = time.monotonic() + 120
    while not (tmp_path / "killed" / "23.0.2").exists() and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.3)
    for process in killed:
        process.send_signal(signal.SIGKILL)
        process.wait()
    (resumed,) = start(tmp_path / "killed", 1, -1)
    assert [process.wait(120) for process in (*complete, resumed)] == [0, 0]
    expected, actual = batches_of(tmp_path / "whole"), batches_of(tmp_path / "killed")
    assert len(expected) == 6 * 11
    assert actual == expected


def test_ranks_with_different_shares_are_rejected(tmp_path: Path) -> None:
    need("torch")
    script = tmp_path / "script.py"
    script.write_text(
        """
import json, sys
import torch.distributed as dist
import torch.multiprocessing as mp
import warpfeed
from test_mixtures import Rows, loader

def said(call):
    try:
        return call()
    except warpfeed.ConfigError as e:
        return str(e)

def work(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    data = warpfeed.Mixture([(Rows(40), 1.0), (Rows(40), 1.0)], draws_per_round=20)
    mixed = loader(data, batch_size=4, distributed=True)
    weighted = loader(Rows(40), weights=[1.0] * 40, batch_size=4, distributed=True)
    found = []
    for call in (
        lambda: mixed.set_mixture([1.0, 2.0]),
        lambda: mixed.set_mixture([1.0, 2.0 + rank]),
        lambda: mixed.set_mixture([1.0, 2.0], after_batches=5 * rank),
        lambda: weighted.set_weights([2.0] * 40),
        lambda: weighted.set_weights([2.0] * 39 + [rank]),
    ):
        if rank:
            dist.barrier()
        found.append(said(call))
        if not rank:
            dist.barrier()
        dist.barrier()
    with open(f"{folder}/{rank}.json", "w") as file:
        json.dump(found, file)
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.start_processes(work, (sys.argv[1],), nprocs=2, start_method="spawn")
"""
    )
    paths = os.pathsep.join(filter(None, [str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, str(script), str(tmp_path)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert all(isinstance(place, list) for place in first), first
    assert second[0] == second[3] == [0, 0]
    for number, word in ((1, "values"), (2, "position"), (4, "values")):
        assert f"rank 1 differs from the rank that began first in: {word}" in second[number], second


def test_zipped_datasets_equal_a_list_of_pairs(mini: str, tmp_path: Path) -> None:
    np.save(tmp_path / "emb.npy", np.arange(64 * 3, dtype=np.float32).reshape(64, 3))
    zipped = warpfeed.Zip([mini, tmp_path / "emb.npy"], check_keys=False)
    options: Any = dict(augment=warpfeed.Augment.train(32), batch_size=16, shuffle=True, seed=3, output="numpy")
    alone = warpfeed.Loader(mini, **options)
    both = warpfeed.Loader(zipped, fields={"emb": warpfeed.NdArray("f32", [3])}, **options)
    assert both.classes == alone.classes
    for one, two in zip(alone, both, strict=True):
        assert (one[0] == two["image"]).all() and (one[1] == two["label"]).all()
        assert two["emb"].tolist() == [[id * 3.0, id * 3 + 1.0, id * 3 + 2.0] for id in two.ids]
    keyed = warpfeed.Loader(warpfeed.Zip([mini, tmp_path / "emb.npy"]), **options)
    with pytest.raises(warpfeed.WarpfeedError, match="has the key .* in dataset 0 .folder. and .* in dataset 1"):
        next(iter(keyed))
    np.save(tmp_path / "emb.npy", np.zeros((63, 3), np.float32))
    with pytest.raises(warpfeed.ConfigError, match="has 63 samples, but dataset 0 .folder. has 64"):
        warpfeed.Loader(zipped, **options)
    with pytest.raises(warpfeed.ConfigError, match="expected a prefix for each of the 2 datasets"):
        warpfeed.Zip(["a", "b"], prefixes=["c"])
    with pytest.raises(TypeError, match="expected a list of datasets"):
        warpfeed.Zip("datasets/mini")


def test_a_prefix_lets_two_datasets_have_the_same_field() -> None:
    parts: list[Any] = [Rows(12), Rows(12, 100)]
    zipped = warpfeed.Zip(parts, prefixes=["", "other"], check_keys=False)
    fields = {name: warpfeed.NdArray("i64", [1]) for name in ("x", "other.x")}
    data = warpfeed.Loader(zipped, drop_field=["image", "label"], fields=fields, output="numpy", batch_size=5)
    for batch in data:
        assert (batch["x"] + 100 == batch["other.x"]).all()
    with pytest.raises(warpfeed.WarpfeedError, match="two datasets have the field 'x.npy'|field \"x.npy\""):
        next(iter(loader(warpfeed.Zip(parts, check_keys=False), batch_size=5)))


def test_calls_that_cannot_work_are_rejected() -> None:
    plain = loader(Rows(20), batch_size=5)
    with pytest.raises(warpfeed.ConfigError, match="set_mixture: this loader was opened without a mixture"):
        plain.set_mixture([1.0])
    with pytest.raises(warpfeed.ConfigError, match="set_weights: this loader was opened without weights"):
        plain.set_weights([1.0] * 20)
    mixed = loader(warpfeed.Mixture([(Rows(20), 1.0), (Rows(20), 1.0)], draws_per_round=10), batch_size=5)
    for invalid, message in (([1.0], "1 proportion, but 2"), ([1.0, float("nan")], "proportion 1 is NaN")):
        with pytest.raises(warpfeed.ConfigError, match=message):
            mixed.set_mixture(invalid)
    with pytest.raises(TypeError, match="proportions='ab': expected a list of numbers"):
        mixed.set_mixture("ab")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="after_batches=1.5: expected a whole number"):
        mixed.set_mixture([1.0, 1.0], after_batches=1.5)  # type: ignore[arg-type]
    state = mixed.state_dict()
    mixed.set_mixture([1.0, 3.0])
    changed = mixed.state_dict()
    assert (state["version"], changed["version"]) == (1, 2)
    assert changed["history"] == [{"from": 0, "values": [1.0, 3.0]}]
    del changed["history"]
    with pytest.raises(warpfeed.ConfigError, match="pass the whole checkpoint"):
        mixed.load_state_dict(changed)
    mixed.load_state_dict(state)
    assert mixed.state_dict() == state, "a state without changes must remove the changes of the loader"


def test_options_of_a_mixture_are_checked() -> None:
    with pytest.raises(warpfeed.ConfigError, match="expected exactly one of epoch, step and sample"):
        warpfeed.MixtureChange([1.0])
    with pytest.raises(warpfeed.ConfigError, match="expected exactly one of epoch, step and sample"):
        warpfeed.MixtureChange([1.0], epoch=1, step=2)
    with pytest.raises(TypeError, match="expected a whole number, or .first, last."):
        warpfeed.MixtureChange([1.0], epoch=(1, 2, 3))  # type: ignore[arg-type]
    with pytest.raises(warpfeed.ConfigError, match="curve='quadratic': expected one of 'linear', 'cosine'"):
        warpfeed.MixtureChange([1.0], epoch=(1, 2), curve="quadratic")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a list of warpfeed.MixtureChange"):
        warpfeed.Mixture([(Rows(3), 1.0)], schedule=[[1.0]])  # type: ignore[list-item]
    with pytest.raises(warpfeed.ConfigError, match="1 proportion, but 2 sources"):
        changes = [warpfeed.MixtureChange([1.0], epoch=1)]
        loader(warpfeed.Mixture([(Rows(3), 1.0), (Rows(3), 1.0)], schedule=changes), batch_size=2)


def test_each_dataset_has_its_own_batch_size() -> None:
    def make(**options: Any) -> warpfeed.Loader:
        parts = [(Rows(30), 1.0), (Rows(50, 30), 1.0)]
        data = warpfeed.Mixture(parts, single_dataset_batches=True, global_batch_sizes=[4, 9])
        return loader(data, seed=3, **options)

    complete = make()
    assert (len(complete), complete.batch_size) == (12, None)
    expected = [batch.ids for batch in complete]
    for ids in expected:
        is_first = ids[0] < 30
        assert len(ids) == (4 if is_first else 9) and all((id < 30) == is_first for id in ids)
    ranks = [make(rank=rank, world_size=3) for rank in range(3)]
    joined = [[id for batch in batches for id in batch.ids] for batches in zip(*ranks, strict=True)]
    assert joined == expected
    copy = pickle.loads(pickle.dumps(make()))
    assert [batch.ids for batch in copy] == expected
    state = make().state_dict()
    assert state["batch_sizes"] == [4, 9]
    with pytest.raises(warpfeed.ConfigError, match="source 0 has batches of 4 samples on 5 ranks"):
        make(rank=0, world_size=5)
    with pytest.raises(warpfeed.ConfigError, match="global_batch_sizes replaces batch_size"):
        make(batch_size=4)
    with pytest.raises(TypeError, match="global_batch_sizes"):
        warpfeed.Mixture([(Rows(30), 1.0)], global_batch_sizes=[1.5])  # type: ignore[list-item]


def test_each_dataset_has_its_own_augmentation(mini: str) -> None:
    crops, complete = warpfeed.Augment.train(24), warpfeed.Augment.letterbox(24, 24).flip(0.5)
    parts = [(mini, 1.0), (mini, 1.0)]

    def images(data: Any, augment: warpfeed.Augment) -> list[tuple[int, bytes]]:
        loader = warpfeed.Loader(data, seed=2, batch_size=7, augment=augment, output="numpy")
        pickled = pickle.loads(pickle.dumps(loader))
        copies = [list(zip(batch.ids, batch.images.copy(), strict=True)) for batch in pickled]
        return [(id, image.tobytes()) for batch in copies for id, image in batch]

    own = warpfeed.Mixture(parts, augments={1: complete})
    alone = [images(parts, augment) for augment in (crops, complete)]
    count = len(warpfeed.Loader(mini).dataset)
    expected = [first if first[0] < count else second for first, second in zip(*alone, strict=True)]
    assert images(own, crops) == expected and expected not in alone
    state = warpfeed.Loader(own, augment=crops).state_dict()
    changed = warpfeed.Mixture(parts, augments={1: warpfeed.Augment.letterbox(24, 24)})
    with pytest.raises(warpfeed.ConfigError, match="augmentation of dataset 1 differs in step 2"):
        warpfeed.Loader(changed, augment=crops, resume=state)
    for augments, message in (
        ({1: warpfeed.Augment.train(32)}, "augments: dataset 1 has images of 32x32 pixels in epoch 0, but dataset 0 has"),
        ({2: complete}, "augments: there is no dataset 2"),
    ):
        with pytest.raises(warpfeed.ConfigError, match=message):
            warpfeed.Loader(warpfeed.Mixture(parts, augments=augments), augment=crops)
    with pytest.raises(TypeError, match="augments: dataset 1 has 'train': expected warpfeed.Augment"):
        warpfeed.Mixture(parts, augments={1: "train"})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="augments"):
        warpfeed.Mixture(parts, augments={"one": complete})  # type: ignore[dict-item]
