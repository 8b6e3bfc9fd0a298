"""Keys: every choice from the secret, marks as specified, nothing leaks, folders load back to the same samples."""

import json
import stat
from pathlib import Path

import pytest
import torch

from indelible.base.errors import DamagedFileError, InputError, UnknownNameError
from indelible.data.images import ImageData
from indelible.keys.content import ALPHABET, ContentMark, text_mask
from indelible.keys.derive import Choices, expand
from indelible.keys.key import Key
from indelible.keys.noise import NoiseMark
from tests.conftest import SECRET, SHAPE, stripes

KINDS = ["content", "noise", "unrelated"]


def make(kind: str, **settings: object) -> Key:
    settings = {"classes": 4, "shape": SHAPE, "secret": SECRET, "labels": "fixed", **settings}
    return Key.create(kind=kind, **settings)  # type: ignore[arg-type]


class TestDerivation:
    def test_hkdf_by_the_rfc(self) -> None:
        """RFC 5869 with the standard library: extract with an empty salt, expand one block."""
        import hashlib
        import hmac

        extracted = hmac.new(bytes(32), SECRET, hashlib.sha256).digest()
        expected = hmac.new(extracted, b"indelible/v1/label" + b"\x01", hashlib.sha256).digest()
        assert expand(SECRET, "label") == expected

    def test_labels_are_independent_and_repeatable(self) -> None:
        assert Choices(SECRET, "a").bytes_(16) == Choices(SECRET, "a").bytes_(16)
        assert Choices(SECRET, "a").bytes_(16) != Choices(SECRET, "b").bytes_(16)
        assert Choices(SECRET, "a").bytes_(16) != Choices(bytes(32), "a").bytes_(16)

    def test_distributions(self) -> None:
        choices = Choices(SECRET, "test")
        counts = torch.bincount(torch.tensor([choices.below(7) for _ in range(7000)]), minlength=7)
        assert int(counts.min()) > 850
        assert int(counts.max()) < 1150
        assert sorted(choices.permutation(100).tolist()) == list(range(100))
        normal = torch.from_numpy(choices.normal(100_000))
        assert abs(float(normal.mean())) < 0.01
        assert abs(float(normal.std()) - 1) < 0.01

    def test_a_wrong_secret_is_refused_without_showing_it(self) -> None:
        with pytest.raises(InputError, match="32 bytes") as caught:
            make("content", secret=b"hunter2hunter2")
        assert "hunter2" not in str(caught.value)


class TestContent:
    def test_the_papers_mark(self) -> None:
        mask = ContentMark.literal((3, 32, 32)).mask()
        rows, columns = mask.nonzero().unbind(1)
        assert int(mask.sum()) == 55
        assert (int(rows.min()), int(rows.max())) == (21, 27)
        assert (int(columns.min()), int(columns.max())) == (3, 28)

    def test_every_glyph_differs_and_has_its_size(self) -> None:
        masks = [text_mask(letter) for letter in ALPHABET]
        assert all(mask.shape == (7, 5) and bool(mask.any()) for mask in masks)
        assert len({tuple(mask.flatten().tolist()) for mask in masks}) == len(ALPHABET)

    def test_opaque_and_transparent_by_hand(self) -> None:
        images = torch.full((1, 3, 32, 32), 100, dtype=torch.uint8)
        mask = ContentMark.literal((3, 32, 32)).mask()
        opaque = ContentMark.literal((3, 32, 32)).apply(images)
        assert bool((opaque[:, :, mask] == 255).all())
        assert bool((opaque[:, :, ~mask] == 100).all())
        # 0.75 * 100 + 0.25 * 255 = 138.75 -> 139
        glassy = ContentMark.literal((3, 32, 32), transparency=0.75).apply(images)
        assert bool((glassy[:, :, mask] == 139).all())

    @pytest.mark.parametrize("size", [0.5, 1.0, 1.2])
    def test_size(self, size: float) -> None:
        mask = ContentMark.literal((3, 32, 32), size=size).mask()
        rows, columns = mask.nonzero().unbind(1)
        assert int(rows.max() - rows.min()) + 1 == round(7 * size)
        assert int(columns.max() - columns.min()) + 1 <= round(26 * size)

    def test_derived_marks_stay_inside_and_differ(self) -> None:
        seen = set()
        for number in range(200):
            mark = ContentMark.derived(expand(SECRET, str(number)), (3, 32, 32))
            assert mark.mask().shape == (32, 32)
            assert 2 <= mark.top <= 23
            assert 2 <= mark.left <= 4
            assert max(mark.colour) == 255
            seen.add((mark.text, mark.top, mark.left, mark.colour))
        assert len(seen) > 190

    @pytest.mark.parametrize(
        ("side", "extent"), [(28, (7, 26)), (32, (7, 26)), (40, (9, 32)), (48, (10, 39)), (64, (14, 52))]
    )
    def test_letters_grow_with_the_image(self, side: int, extent: tuple[int, int]) -> None:
        # 7 x 26 dots of side / 32 pixels each, and never less than one pixel
        rows, columns = ContentMark.literal((3, side, side)).mask().nonzero().unbind(1)
        assert (int(rows.max() - rows.min()) + 1, int(columns.max() - columns.min()) + 1) == extent

    def test_large_and_small_images(self) -> None:
        assert int(ContentMark.literal((3, 224, 224)).mask().sum()) == 55 * 49
        assert int(ContentMark.literal((1, 28, 28)).mask().sum()) == 55
        with pytest.raises(InputError, match="takes 21 x 78 pixels"):
            make("content", size=3.0)


class TestNoise:
    def test_added_and_clipped_by_hand(self) -> None:
        pattern = torch.tensor([[[30, -30]]], dtype=torch.int16)
        images = torch.tensor([[[[240, 10]]], [[[100, 100]]]], dtype=torch.uint8)
        marked = NoiseMark(shape=(1, 1, 2), pattern=pattern).apply(images)
        assert marked.flatten().tolist() == [255, 0, 130, 70]

    def test_strength_is_the_deviation(self) -> None:
        for strength in (0.05, 0.1):
            pattern = NoiseMark.derived(SECRET, (3, 64, 64), strength=strength).pattern.float() / 255
            assert float(pattern.std()) == pytest.approx(strength, rel=0.03)

    def test_the_literal_pattern_is_public_and_fixed(self) -> None:
        assert torch.equal(NoiseMark.literal(SHAPE).pattern, NoiseMark.literal(SHAPE).pattern)
        assert not torch.equal(NoiseMark.literal(SHAPE).pattern, NoiseMark.derived(SECRET, SHAPE).pattern)


class TestUnrelated:
    def test_pool_is_divided(self) -> None:
        pool = stripes(60)
        key = make("unrelated", source=pool, target=1)
        carriers = stripes(200)
        embed = key.samples(carriers, purpose="embed", count=30).images
        check = key.samples(carriers, purpose="verify").images
        assert len(check) == 30
        rows = {image.numpy().tobytes() for image in embed} & {image.numpy().tobytes() for image in check}
        assert not rows

    def test_only_one_class_and_any_shape(self) -> None:
        gray = ImageData(
            torch.randint(0, 256, (20, 1, 28, 28), dtype=torch.uint8), torch.arange(20) % 2, ("0", "1"), "digits"
        )
        key = make("unrelated", source=gray, source_class=0)
        assert key.pool is not None
        assert key.pool.shape == (10, 3, 32, 32)
        with pytest.raises(InputError, match="at least 4 images"):
            make("unrelated", source=gray, source_class=7)

    def test_generated_families_differ_between_keys_and_vary_within(self) -> None:
        carriers = stripes(40)
        first = make("unrelated").samples(carriers, purpose="embed", count=8).images
        second = make("unrelated", secret=bytes(32)).samples(carriers, purpose="embed", count=8).images
        assert len({image.numpy().tobytes() for image in torch.cat([first, second])}) == 16
        assert float(first.float().std()) > 20
        verify = make("unrelated").samples(carriers, purpose="verify", count=8).images
        assert not any(torch.equal(a, b) for a in first for b in verify)

    def test_too_few_are_refused_and_the_papers_needs_a_source(self) -> None:
        key = make("unrelated", source=stripes(20))
        with pytest.raises(InputError, match="images to embed, too few for 11 unrelated samples"):
            key.samples(stripes(100), purpose="embed", count=11)
        with pytest.raises(InputError, match="SVHN"):
            make("unrelated", scheme="paper")
        with pytest.raises(InputError, match="unrelated marks only"):
            make("noise", source=stripes(20))


class TestKey:
    @pytest.mark.parametrize("kind", KINDS)
    def test_never_carriers_of_the_target_class(self, kind: str) -> None:
        key = make(kind, target=2)
        for purpose in ("embed", "verify"):
            samples = key.samples(stripes(200), purpose=purpose, count=50)
            assert not bool((stripes(200).labels[samples.carriers] == 2).any())
            assert bool((samples.labels == 2).all())
            assert samples.carriers.unique().numel() == 50

    @pytest.mark.parametrize("kind", KINDS)
    def test_saved_and_loaded_to_identical_samples(self, kind: str, tmp_path: Path) -> None:
        key = make(kind, source=stripes(80, seed=5) if kind == "unrelated" else None)
        folder = key.save(tmp_path / "key")
        again = Key.load(folder)
        assert again == key
        assert again.digest == key.digest
        for purpose in ("embed", "verify"):
            one = key.samples(stripes(100), purpose=purpose, count=20)
            two = again.samples(stripes(100), purpose=purpose, count=20)
            assert torch.equal(one.images, two.images)
            assert torch.equal(one.carriers, two.carriers)

    def test_the_secret_is_private_and_appears_nowhere(self, tmp_path: Path) -> None:
        key = make("content")
        key.save(tmp_path)
        assert stat.S_IMODE((tmp_path / "secret.key").stat().st_mode) == 0o600
        shown = [repr(key), str(key), repr(key.mark()), repr(make("unrelated").mark()), json.dumps(dict(key.public()))]
        shown.append((tmp_path / "key.json").read_text())
        for text in shown:
            assert SECRET.hex() not in text
            assert repr(SECRET)[2:-1] not in text

    def test_another_key_is_not_overwritten(self, tmp_path: Path) -> None:
        make("content").save(tmp_path)
        make("content").save(tmp_path)
        with pytest.raises(InputError, match="another key"):
            make("content", secret=bytes(32)).save(tmp_path)

    @pytest.mark.parametrize("field", ["kind", "target", "size", "strength", "digest", "version", "scheme"])
    def test_an_altered_key_is_refused(self, field: str, tmp_path: Path) -> None:
        make("content", target=1).save(tmp_path)
        path = tmp_path / "key.json"
        public = json.loads(path.read_text())
        public[field] = {
            "kind": "noise", "target": 2, "size": 1.1, "strength": 0.2, "digest": "0" * 64, "version": 9,
            "scheme": "paper",
        }[field]  # fmt: skip
        path.write_text(json.dumps(public))
        with pytest.raises(DamagedFileError, match="version 9" if field == "version" else "does not match its digest"):
            Key.load(tmp_path)

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            ("", "is not readable JSON"),
            ("not json", "is not readable JSON"),
            ("[]", "is not a key: no JSON object"),
            ("null", "is not a key: no JSON object"),
            ("{}", r"is not a key that this version reads \('version'\)"),
            ('{"version": 1}', r"is not a key that this version reads \('pool'\)"),
        ],
    )
    def test_a_damaged_key_is_refused(self, content: str, says: str, tmp_path: Path) -> None:
        make("content").save(tmp_path)
        (tmp_path / "key.json").write_text(content)
        with pytest.raises(DamagedFileError, match=says):
            Key.load(tmp_path)

    @pytest.mark.parametrize("content", ["", "zz", "00" * 31, "é"])
    def test_a_damaged_secret_is_refused(self, content: str, tmp_path: Path) -> None:
        make("content").save(tmp_path)
        (tmp_path / "secret.key").write_text(content)
        with pytest.raises(DamagedFileError, match=r"secret\.key"):
            Key.load(tmp_path)
        (tmp_path / "secret.key").unlink()
        with pytest.raises(DamagedFileError, match="missing"):
            Key.load(tmp_path)

    def test_a_key_of_another_shape_is_refused(self) -> None:
        with pytest.raises(InputError, match=r"made for 4 classes of images \(3, 32, 32\)"):
            make("content").samples(stripes(40, classes=5), purpose="verify")

    def test_wrong_settings(self) -> None:
        with pytest.raises(UnknownNameError, match="content, noise, plain, unrelated"):
            make("colour")
        with pytest.raises(InputError, match=r"0\.\.3"):
            make("content", target=4)
        with pytest.raises(InputError, match="transparency"):
            make("content", transparency=1.0)
        with pytest.raises(InputError, match="160"):
            make("content", target=0).samples(stripes(200), purpose="verify", count=151 + 9)

    def test_target_comes_from_the_secret_unless_given(self) -> None:
        targets = {make("content", secret=expand(SECRET, str(n))).target for n in range(60)}
        assert targets == {0, 1, 2, 3}
        assert make("content", scheme="paper").target == 0

    @pytest.mark.parametrize("kind", KINDS)
    def test_decoys_are_other_keys_of_the_same_kind(self, kind: str) -> None:
        key = make(kind, target=3)
        decoys = [key.decoy(number) for number in range(5)]
        assert len({decoy.digest for decoy in [*decoys, key]}) == 6
        assert all((decoy.kind, decoy.target) == (kind, 3) for decoy in decoys)
