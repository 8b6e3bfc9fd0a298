"""Base of the attacks that the ICCV 2023 paper did not run: there is no recipe ``paper`` to repeat."""

from dataclasses import dataclass

from indelible.attacks.base import RemovalAttack
from indelible.base.errors import InputError

__all__ = ["OneRecipe"]


@dataclass(frozen=True, kw_only=True)
class OneRecipe(RemovalAttack):
    """An attack with the recipe ``sound`` only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.recipe != "sound":
            raise InputError(
                f"{type(self).__name__} has one recipe, 'sound', got {self.recipe!r}: the paper whose slips the recipe "
                "'paper' repeats did not run this attack. Leave the recipe out."
            )
