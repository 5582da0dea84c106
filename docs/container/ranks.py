"""Reads the share of one rank. Put your training step into the loop.

Start `python3 ranks.py DATA` once for each rank, with torchrun, mpirun, srun or containers.
"""

import sys

import warpfeed

loader = warpfeed.Loader(
    sys.argv[1], global_batch_size=16, shuffle=True, seed=42, augment=warpfeed.Augment.train(64), distributed=True, output="numpy"
)
count = batches = 0
for images, labels in loader:
    batches += 1
    count += len(images)
print(f"{count} images in {batches} batches", flush=True)
