"""Put a watermark into a model: one file per method."""

from indelible.embed.app import APP, AdversarialPerturbation
from indelible.embed.base import EMBEDDINGS, Embedded, EmbeddingMethod, embed
from indelible.embed.vanilla import Vanilla

__all__ = ["APP", "EMBEDDINGS", "AdversarialPerturbation", "Embedded", "EmbeddingMethod", "Vanilla", "embed"]
