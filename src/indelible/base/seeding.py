"""Seeds that need no state: every random choice is a function of the run's seed and where it is made.

A batch's augmentation is drawn from ``generator(seed, "augment", epoch, step)``. So a run that is resumed in the
middle of an epoch draws what the uninterrupted run would have drawn, and nothing has to be stored for it.
"""

import hashlib

import torch


def derive_seed(seed: int, *place: str | int) -> int:
    """Return a 63-bit seed for one place in a run, independent of all other places."""
    text = "/".join([str(seed), *map(str, place)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, *place: str | int) -> torch.Generator:
    """Return a generator on the CPU, seeded for one place in a run."""
    return torch.Generator().manual_seed(derive_seed(seed, *place))
