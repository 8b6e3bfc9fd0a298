"""A watermark under the Hugging Face Trainer: one callback. Needs pip install 'indelible[transformers]'.

The vision transformer is built from a configuration; nothing is downloaded.
Run it: python examples/transformers_app.py   (seconds on a CPU)
"""

import tempfile

from torch import Tensor
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification, set_seed
from transformers.utils import logging

import indelible
from indelible.integrations.transformers import TransformersWatermark


class Items(Dataset[dict[str, Tensor]]):
    """Images as the model takes them: normalised to mean 0, deviation about 1."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = (images.float() / 255 - 0.5) / 0.5, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"pixel_values": self.images[index], "labels": self.labels[index]}


def main() -> None:
    """Train with the callback, then verify."""
    logging.set_verbosity_error()
    set_seed(0)
    train, test = indelible.load("fashion-mini")
    model = ViTForImageClassification(
        ViTConfig(
            image_size=28, patch_size=7, num_channels=1, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=96, num_labels=10,
        )
    )  # fmt: skip

    key = indelible.Key.create(classes=10, shape=train.shape)
    normalize = ((0.5,), (0.5,))
    watermark = TransformersWatermark(key, normalize=normalize)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, num_train_epochs=8, per_device_train_batch_size=64, learning_rate=2e-3, use_cpu=True,
            save_strategy="no", report_to=[], disable_tqdm=True, logging_strategy="no", seed=0,
        )  # fmt: skip
        items = Items(train.images, train.labels)
        Trainer(model=model, args=arguments, train_dataset=items, callbacks=[watermark]).train()

    verdict = indelible.verify(model, key, carriers=test, normalize=normalize)
    print(f"BA {verdict.ba:.1%}, WSR {verdict.wsr:.1%}, p = {verdict.p_value:.2g}")
    print("OWNED" if verdict.owned else "NOT SHOWN", "-", verdict.sentence)


if __name__ == "__main__":
    main()
