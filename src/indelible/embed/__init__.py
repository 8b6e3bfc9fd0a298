"""Put a watermark into a model: one file per method."""

from indelible.embed.app import APP, AdversarialPerturbation
from indelible.embed.base import EMBEDDINGS, Embedded, EmbeddingMethod, embed, key_for
from indelible.embed.cae import ConferrableExamples
from indelible.embed.cw import CW, CertifiedTraining
from indelible.embed.ew import EW, ExponentialWeights
from indelible.embed.ntl import NonTransferable
from indelible.embed.pgd_at import PGDTraining
from indelible.embed.rose import Rose
from indelible.embed.trades import TradeOff
from indelible.embed.vanilla import Vanilla

__all__ = [
    "APP",
    "CW",
    "EMBEDDINGS",
    "EW",
    "AdversarialPerturbation",
    "CertifiedTraining",
    "ConferrableExamples",
    "Embedded",
    "EmbeddingMethod",
    "ExponentialWeights",
    "NonTransferable",
    "PGDTraining",
    "Rose",
    "TradeOff",
    "Vanilla",
    "embed",
    "key_for",
]
