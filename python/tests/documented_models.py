"""Small models for the examples that train a model."""

from __future__ import annotations

from typing import Any


def classifier() -> Any:
    """Returns a model with the interface that Hugging Face's `Trainer` calls."""
    import torch

    class Classifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(3, 4)

        def forward(self, pixel_values: Any, labels: Any) -> dict[str, Any]:
            logits = self.head(pixel_values.float().mean((2, 3)))
            return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    return Classifier()


def module() -> Any:
    import lightning
    import torch

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(3, 4)

        def training_step(self, batch, index):  # type: ignore[no-untyped-def]
            images, labels = batch
            return torch.nn.functional.cross_entropy(self.head(images.float().mean((2, 3))), labels)

        def validation_step(self, batch, index):  # type: ignore[no-untyped-def]
            pass

        def configure_optimizers(self):  # type: ignore[no-untyped-def]
            return torch.optim.SGD(self.parameters(), 0.01)

    return Module()
