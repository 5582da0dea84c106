"""The `train` example in PyTorch: the same network, optimizer and data, but a PyTorch DataLoader.

    python train_torch.py PATH [--epochs 3] [--side 32] [--batch 32] [--widths 12,24,48] [--rate 0.05] [--workers 16]

PATH contains one folder per class. Every fifth sample is held out. Prints what the example prints:
loss, held-out accuracy, images per second, and the fraction of the time spent waiting for batches.
"""
import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WARM_UP = 20


class Block(nn.Module):
    def __init__(self, inputs, outputs, halves):
        super().__init__()
        stride = 2 if halves else 1
        self.inner = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.around = nn.Identity()
        if inputs != outputs or halves:
            pool = nn.AvgPool2d(2) if halves else nn.Identity()
            self.around = nn.Sequential(pool, nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return torch.relu(self.inner(x) + self.around(x))


def resnet(widths, classes):
    layers = [nn.Conv2d(3, widths[0], 3, 2, 1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU()]
    layers += [Block(a, b, n > 0) for n, (a, b) in enumerate(zip([widths[0]] + widths, widths))]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes))
    for layer in net.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return net


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("path")
    for name, default in [("epochs", 3), ("side", 32), ("batch", 32), ("workers", 16)]:
        ask.add_argument(f"--{name}", type=int, default=default)
    ask.add_argument("--widths", default="12,24,48")
    ask.add_argument("--rate", type=float, default=0.05)
    args = ask.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tail = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    train = v2.Compose([v2.RandomResizedCrop(args.side, scale=(0.35, 1.0)), v2.RandomHorizontalFlip(), *tail])
    test = v2.Compose([v2.Resize(args.side * 8 // 7), v2.CenterCrop(args.side), *tail])
    pick = lambda held_out, transform: (lambda data: Subset(
        data, [i for i in range(len(data)) if (i % 5 == 4) == held_out]))(ImageFolder(args.path, transform))
    workers = dict(num_workers=args.workers, persistent_workers=args.workers > 0, pin_memory=device.type == "cuda")
    batches = DataLoader(pick(False, train), args.batch, shuffle=True, drop_last=True, **workers)
    held_out = DataLoader(pick(True, test), args.batch, **workers)
    net = resnet([int(w) for w in args.widths.split(",")], len(batches.dataset.dataset.classes)).to(device)
    sgd = torch.optim.SGD(net.parameters(), args.rate, momentum=0.9, weight_decay=5e-4)
    steps = len(batches) * args.epochs
    rate = lambda step: min((step + 1) / WARM_UP, 1) * (1 - step / steps)
    schedule = torch.optim.lr_scheduler.LambdaLR(sgd, rate)
    for epoch in range(args.epochs):
        net.train()
        losses, waited, began = [], 0.0, time.perf_counter()
        source = iter(batches)
        while True:
            asked = time.perf_counter()
            batch = next(source, None)
            waited += time.perf_counter() - asked
            if batch is None:
                break
            images, labels = (part.to(device, non_blocking=True) for part in batch)
            loss = nn.functional.cross_entropy(net(images), labels)
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            schedule.step()
            losses.append(loss.detach())
        loss = torch.stack(losses).mean().item()
        took = time.perf_counter() - began
        net.eval()
        with torch.no_grad():
            hits = sum((net(x.to(device)).argmax(1) == y.to(device)).sum().item() for x, y in held_out)
        print(f"epoch {epoch}: loss {loss:.3f}, held-out accuracy {100 * hits / len(held_out.dataset):.1f}%, "
              f"{len(losses) * args.batch / took:.0f} images/s, waited {100 * waited / took:.1f}% of the time",
              flush=True)


if __name__ == "__main__":
    main()
