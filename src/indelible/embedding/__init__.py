"""Put a watermark into a model: one file per method."""

from indelible.embedding.app import APP as APP
from indelible.embedding.app import AdversarialPerturbation as AdversarialPerturbation
from indelible.embedding.cw import CW as CW
from indelible.embedding.cw import CertifiedTraining as CertifiedTraining
from indelible.embedding.embedding_method import EMBEDDINGS as EMBEDDINGS
from indelible.embedding.embedding_method import Embedded as Embedded
from indelible.embedding.embedding_method import EmbeddingMethod as EmbeddingMethod
from indelible.embedding.embedding_method import embed as embed
from indelible.embedding.ew import EW as EW
from indelible.embedding.ew import ExponentialWeights as ExponentialWeights
from indelible.embedding.rehearsed import RehearsedThief as RehearsedThief
from indelible.embedding.vanilla import Vanilla as Vanilla
