"""A small marked model that the tests of analyses share."""

from functools import cache

from indelible.analyze.marked_model import MarkedModel
from indelible.embedding import embed
from indelible.keys.key import Key
from tests.conftest import SECRET, SHAPE, TinyNet, stripes
from tests.values import method_value

__all__ = ["marked_subject", "plain_subject"]


def plain_subject(label: str = "plain") -> MarkedModel:
    """Return an untrained model with a key: enough where only the arithmetic counts."""
    import torch

    torch.manual_seed(3)
    key = Key.create(kind="content", classes=4, shape=SHAPE, target=0, secret=SECRET)
    return MarkedModel.of(
        TinyNet(), key, test=stripes(120, seed=1), attacker=stripes(96, seed=2), owner=stripes(160), label=label,
        fraction=0.15,
    )  # fmt: skip


@cache
def _trained() -> TinyNet:
    import torch

    torch.manual_seed(3)
    key = Key.create(kind="content", classes=4, shape=SHAPE, target=0, secret=SECRET)
    done = embed(
        TinyNet(), stripes(160), key, method_value("vanilla", key, "paper", fraction=0.15), scale="paper", seed=0,
        train={"epochs": 12, "batch_size": 32, "lr": 0.05, "augmentation": "none"},
    )  # fmt: skip
    assert isinstance(done.model, TinyNet)
    return done.model


def marked_subject(label: str = "marked") -> MarkedModel:
    """Return a model that has learnt the bars and the mark."""
    found = plain_subject(label)
    return MarkedModel.of(
        _trained(), found.key, test=found.test, attacker=found.attacker, owner=found.owner, label=label, fraction=0.15
    )
