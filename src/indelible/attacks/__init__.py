"""Try to remove a watermark: one file per removal attack."""

from indelible.attacks.base import ATTACKS, Attacked, RemovalAttack, attack
from indelible.attacks.curve import Curve, evaluate_curve
from indelible.attacks.ft import FineTuning

__all__ = ["ATTACKS", "Attacked", "Curve", "FineTuning", "RemovalAttack", "attack", "evaluate_curve"]
