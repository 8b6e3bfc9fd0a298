"""Merkle tree of RFC 6962, Section 2.1: a short commitment to many entries, any of which can be opened by itself.

    MTH({})      = SHA-256()
    MTH({d})     = SHA-256(0x00 || d)
    MTH(D[n])    = SHA-256(0x01 || MTH(D[0:k]) || MTH(D[k:n])),  k the largest power of two below n

The two prefixes keep leaves and inner nodes apart: an inner node can never be passed off as an entry. A path belongs to
one place in the order; the same entry elsewhere does not fit.
"""

import hashlib
from collections.abc import Sequence


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of an entry."""
    return hashlib.sha256(b"\x00" + entry).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def _split(count: int) -> int:
    return 1 << (count - 1).bit_length() - 1


def tree_root(leaves: Sequence[bytes]) -> bytes:
    """Return the root over leaf hashes."""
    if len(leaves) < 2:
        return leaves[0] if leaves else hashlib.sha256().digest()
    middle = _split(len(leaves))
    return _node(tree_root(leaves[:middle]), tree_root(leaves[middle:]))


def audit_paths(leaves: Sequence[bytes], indices: Sequence[int]) -> list[list[bytes]]:
    """Return, for each of ``indices``, the hashes that lead from its leaf to the root, lowest first."""
    paths: list[list[bytes]] = [[] for _ in indices]
    level, places = list(leaves), list(indices)
    # Pairing from the left, with an odd last node passed up as it is, gives the same tree as the splits above.
    while len(level) > 1:
        for path, place in zip(paths, places, strict=True):
            if (beside := place ^ 1) < len(level):
                path.append(level[beside])
        level = [_node(*level[at : at + 2]) for at in range(0, len(level) - 1, 2)] + level[len(level) // 2 * 2 :]
        places = [place // 2 for place in places]
    return paths


def root_from_path(leaf: bytes, index: int, count: int, path: Sequence[bytes]) -> bytes | None:
    """Return the root that a leaf at ``index`` of ``count`` and its path lead to; None if the path does not fit."""
    if not 0 <= index < count:
        return None
    if count == 1:
        return leaf if not path else None
    if not path:
        return None
    middle = _split(count)
    if index < middle:
        below = root_from_path(leaf, index, middle, path[:-1])
        return None if below is None else _node(below, path[-1])
    below = root_from_path(leaf, index - middle, count - middle, path[:-1])
    return None if below is None else _node(path[-1], below)
