"""Reads windows of packed documents for a language model.

The tokens are synthetic: documents of random length, each of which ends with token 0.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import warpfeed

LENGTH, END, VOCABULARY = 64, 0, 1000


def main() -> None:
    random = np.random.default_rng(1)
    tokens = random.integers(1, VOCABULARY, 20_000, dtype=np.uint16)
    tokens[random.integers(0, len(tokens), 300)] = END
    with tempfile.TemporaryDirectory() as folder:
        tokens.tofile(Path(folder, "train.bin"))
        loader = warpfeed.Loader(
            warpfeed.Tokens(folder, LENGTH + 1, stride=LENGTH), batch_size=8, shuffle=True, seed=42, output="numpy",
            fields={"tokens": warpfeed.TokenIds(LENGTH + 1, eos_token_id=END, vocab_size=VOCABULARY)},
        )  # fmt: skip
        count = 0
        for batch in loader:
            inputs, targets = batch["tokens"][:, :-1], batch["tokens"][:, 1:]
            document = batch["tokens.document"][:, :-1]
            mask = (document[:, :, None] == document[:, None, :]) & np.tri(LENGTH, dtype=bool)
            assert inputs.shape == targets.shape and mask.shape == (len(inputs), LENGTH, LENGTH)
            count += targets.size
        loader.close()
    print(f"{count} targets")


if __name__ == "__main__":
    main()
