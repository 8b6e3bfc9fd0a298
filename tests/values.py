"""Method values by name: what a name means in ``embed`` and ``attack``, with some settings changed."""

from typing import Any

from indelible.attacks import ATTACKS, RemovalAttack
from indelible.embedding import EMBEDDINGS
from indelible.keys.key import Key


def attack_value(name: str, scale: str = "cpu", **settings: Any) -> RemovalAttack:
    """Return an attack with the defaults that its name has, and these settings."""
    made: RemovalAttack = ATTACKS[name].build.at_scale(scale, **settings)
    return made


def method_value(name: str, key: Key, scale: str = "cpu", **settings: Any) -> Any:
    """Return an embedding method with the defaults that its name has, and these settings."""
    return EMBEDDINGS[name].build.for_key(key, scale, **settings)


def key_for(key: Key, name: str, **settings: Any) -> Key:
    """Return the key that a method embeds when it is given ``key``."""
    made: Key = method_value(name, key, **settings).key_for(key)
    return made
