"""Merkle trees against a slow reference and published values; canonical JSON; signatures; choices of a challenge."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.merkle import audit_paths, leaf_hash, root_from_path, tree_root
from indelible.evidence.canonical import canonical, parse
from indelible.evidence.decision import KEYED, TEST, judge, same
from indelible.evidence.opening import Questions, challenge_seed, opened_indices
from indelible.evidence.signing import Identity, is_signed
from indelible.keys.samples import WatermarkSamples
from indelible.verification.statistics.exact_tests import binomial_tail, bounded_binomial

# The test vectors that implementations of RFC 6962 share: entries, and the root over the first n of them.
ENTRIES = [b"", b"\x00", b"\x10", b"\x20\x21", b"\x30\x31", b"\x40\x41\x42\x43", bytes(range(0x50, 0x58)),
           bytes(range(0x60, 0x70))]  # fmt: skip
ROOTS = {
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}


def slow_root(entries: list[bytes]) -> bytes:
    """As the RFC's definition reads, by levels: pair from the left, an odd one goes up as it is."""
    level = [hashlib.sha256(b"\x00" + entry).digest() for entry in entries]
    while len(level) > 1:
        pairs = [hashlib.sha256(b"\x01" + level[at] + level[at + 1]).digest() for at in range(0, len(level) - 1, 2)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0] if level else hashlib.sha256().digest()


@pytest.mark.parametrize("count", ROOTS)
def test_published_roots(count: int) -> None:
    assert tree_root([leaf_hash(entry) for entry in ENTRIES[:count]]).hex() == ROOTS[count]


def audit_path(leaves: list[bytes], index: int) -> list[bytes]:
    """RFC 6962, Section 2.1.1, as it is written there."""
    if len(leaves) < 2:
        return []
    middle = 1 << (len(leaves) - 1).bit_length() - 1
    if index < middle:
        return [*audit_path(leaves[:middle], index), tree_root(leaves[middle:])]
    return [*audit_path(leaves[middle:], index - middle), tree_root(leaves[:middle])]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=4), min_size=1, max_size=40), st.data())
def test_paths_lead_to_the_root_from_their_place_only(entries: list[bytes], data: st.DataObject) -> None:
    leaves = [leaf_hash(entry) for entry in entries]
    root, count = slow_root(entries), len(entries)
    assert tree_root(leaves) == root
    index = data.draw(st.integers(0, count - 1))
    path = audit_path(leaves, index)
    assert root_from_path(leaves[index], index, count, path) == root
    assert audit_paths(leaves, [index, 0, count - 1]) == [path, audit_path(leaves, 0), audit_path(leaves, count - 1)]
    other = data.draw(st.integers(-2, count + 2).filter(lambda place: place != index))
    if leaves[index] != (leaves[other] if 0 <= other < count else b""):
        assert root_from_path(leaves[index], other, count, path) != root
    assert root_from_path(leaves[index], index, count, [*path, root]) != root
    if path:
        assert root_from_path(leaves[index], index, count, path[:-1]) != root
        assert root_from_path(leaves[index], index, count, [path[0][::-1], *path[1:]]) != root or len(set(path[0])) == 1


def test_an_inner_node_is_no_entry() -> None:
    left, right = leaf_hash(b"a"), leaf_hash(b"b")
    assert leaf_hash(left + right) != tree_root([left, right])


def test_canonical_json_of_the_rfc() -> None:
    # RFC 8785, Section 3.2.2: numbers, escapes and sorting.
    value = json.loads(
        r'{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],'
        r'"string":"\u20ac$\u000F\u000aA\u0027\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}'
    )
    assert (
        canonical(value)
        == (
            '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
            '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
        ).encode()
    )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", r"JSON \(Expecting value"),
        (b"{", r"JSON \(Expecting property name"),
        (b"\xff", r"JSON \('utf-8' codec can't decode byte 0xff"),
        (b'{"a":NaN}', r"JSON \(NaN is not a JSON number"),
        (b'{"a":' * 5000, r"JSON \(maximum recursion depth"),
        (b'{"a":100000000000000000000}', r"JSON \(100000000000000000000 exceeds"),
        *(
            (content, "^it is not a JSON object in its canonical form")
            for content in (
                b"[]", b'{"a": 1}', b'{"b":1,"a":2}', b'{"a":1.0}', b'{"a":1}\n', b'{"a":1,"a":1}', b'{"a":"\\u0041"}',
            )
        ),
    ],
)  # fmt: skip
def test_other_spellings_are_refused(content: bytes, says: str) -> None:
    with pytest.raises(DamagedFileError, match=says):
        parse(content, "it")


def test_signatures(tmp_path: Path) -> None:
    identity = Identity.create()
    identity.save(tmp_path / "identity.pem")
    assert (tmp_path / "identity.pem").stat().st_mode & 0o777 == 0o600
    again = Identity.load(tmp_path / "identity.pem")
    signature = again.sign("claim", b"text")
    assert is_signed(identity.public, "claim", b"text", signature)
    assert not is_signed(identity.public, "commitment", b"text", signature), "a signature is for one kind of document"
    assert not is_signed(identity.public, "claim", b"texT", signature)
    assert not is_signed("zz", "claim", b"text", signature)
    assert "private" not in repr(identity)
    with pytest.raises(InputError, match="exists"):
        identity.save(tmp_path / "identity.pem")
    (tmp_path / "broken.pem").write_bytes(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    with pytest.raises(DamagedFileError, match=r"broken\.pem is not a private PEM key without a password"):
        Identity.load(tmp_path / "broken.pem")


def test_a_challenge_decides_and_claims_share_no_sample() -> None:
    root, seed = "cd" * 32, challenge_seed("ab" * 32, "dice")

    def opened(seed: bytes, number: int, opens: int = 40) -> list[int]:
        return opened_indices(seed, root, size=101, parts=2, number=number, opens=opens)

    first = opened(seed, 0)
    assert first == sorted(set(first)) == opened(seed, 0)
    assert first != opened(challenge_seed("ab" * 32, "dicf"), 0)
    assert first != opened(challenge_seed("ac" * 32, "dice"), 0)
    whole = opened(seed, 0, 50) + opened(seed, 1, 50)
    assert len(set(whole)) == 100
    assert opened(challenge_seed("ab" * 32, "dicf"), 1, 50) == opened(seed, 1, 50), "a part is the claim's, not chosen"
    with pytest.raises(InputError, match="all of them are made"):
        opened(seed, 2)
    with pytest.raises(InputError, match=r"can open 1\.\.50 of 101 samples"):
        opened(seed, 0, 51)


def test_the_opened_subset_is_any_with_the_same_chance() -> None:
    """Of a part of 6 samples, each is opened by about half of 400 challenges that open 3: within 5 deviations."""
    counts = [0] * 6
    for turn in range(400):
        seed = bytes([turn % 256, turn // 256]) + bytes(30)
        for index in opened_indices(seed, "00" * 32, size=6, parts=1, number=0, opens=3):
            counts[index] += 1
    assert all(abs(count - 200) < 50 for count in counts)


def pixels(hits: int, misses: int, right: int = 0) -> torch.Tensor:
    """Return samples of one pixel, which is the answer: label 0, another class, or the true class 1."""
    return torch.tensor([0] * hits + [2] * misses + [1] * right).reshape(-1, 1, 1, 1)


def decided(samples: torch.Tensor, decoys: list[torch.Tensor], *, test: str, classes: int) -> dict[str, Any]:
    key = {"classes": classes, "scheme": "derived", "kind": "content"}
    stated: Any = SimpleNamespace(alpha=1e-6, claims=1, key=key, codebook=None, test=test)
    zeros, ones = torch.zeros(30, dtype=torch.int64), torch.ones(30, dtype=torch.int64)
    asked = [WatermarkSamples(images, zeros, zeros, ones) for images in decoys]
    questions = Questions(samples=samples, labels=zeros, true=ones, decoys=asked)
    return judge(stated, questions, lambda images: images.flatten())


def test_the_decision_is_the_verdicts_own_test() -> None:
    decoys = [(0, 30)] * 19 + [(3, 30)]
    asked = [pixels(hits, 30 - hits) for hits, _ in decoys]
    found = decided(pixels(29, 1), asked, test=TEST, classes=4)
    assert (found["p_value"], found["null_rate"]) == bounded_binomial(29, 30, decoys, 1e-7)
    assert found["queries"] == 30 + 20 * 30
    assert found["decoy_rate"] == 0.1
    keyed = decided(pixels(20, 4, 6), [], test=KEYED, classes=11)
    assert keyed["p_value"] == pytest.approx(binomial_tail(20, 24, 0.1), rel=1e-9)
    assert keyed["owned"]
    assert same(found, {**found, "p_value": found["p_value"] * (1 + 1e-9)})
    assert not same(found, {**found, "p_value": found["p_value"] * 2})
    assert not same(found, {**found, "owned": 1})
    assert (found["test"], keyed["test"]) == (TEST, KEYED)
