"""Networks by name: the paper's architectures, small ones for a CPU, and a user's own.

    model = build_model("resnet-18", classes=10, shape=(3, 32, 32), seed=0)
    model = build_model("mypackage.networks:build", classes=10, shape=(3, 32, 32))

Importing a family adds its networks to :data:`MODELS`.
"""

from indelible.models import mobilenetv2, resnet, vgg, vit
from indelible.models.catalogue import MODELS, ModelInfo, build_model, stem_for

__all__ = ["MODELS", "ModelInfo", "build_model", "mobilenetv2", "resnet", "stem_for", "vgg", "vit"]
