"""A watermark under the Lightning Trainer: one callback. Needs pip install 'indelible[lightning]'.

Run it: python examples/lightning_app.py   (seconds on a CPU)
"""

import logging
import warnings

import pytorch_lightning as lightning
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import indelible
from indelible.integrations.lightning import LightningWatermark


class Classifier(lightning.LightningModule):
    """An ordinary LightningModule; nothing in it knows of the watermark."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        return self.net(images)

    def training_step(self, batch: tuple[Tensor, Tensor], _index: int) -> Tensor:
        """Return the ordinary loss."""
        images, labels = batch
        return cross_entropy(self(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return one optimiser."""
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def main() -> None:
    """Train with the callback, then verify."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    lightning.seed_everything(0, verbose=False)
    train, test = indelible.load("fashion-mini")
    loader = DataLoader(TensorDataset(train.images.float() / 255, train.labels), batch_size=64, shuffle=True)

    key = indelible.Key.create(classes=10, shape=train.shape)
    watermark = LightningWatermark(key)
    module = Classifier()
    trainer = lightning.Trainer(
        max_epochs=4, callbacks=[watermark], accelerator="cpu", gradient_clip_val=5.0, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, loader)

    verdict = indelible.verify(module, key, carriers=test)
    print(f"BA {verdict.ba:.1%}, WSR {verdict.wsr:.1%}, p = {verdict.p_value:.2g}")
    print("OWNED" if verdict.owned else "NOT SHOWN", "-", verdict.sentence)


if __name__ == "__main__":
    main()
