"""Pre-processing: each transform by hand, the wrapper around modules and other suspects, the record's say."""

import pytest
import torch
from torch import Tensor

import indelible
from indelible.attacks import attack
from indelible.attacks.preprocess import TRANSFORMS, InputPreprocessing, Preprocessed, deployed, preprocess
from indelible.base.errors import InputError
from indelible.base.records import Record
from indelible.data.augment import normalise, to_float
from indelible.data.images import ImageData
from indelible.train.evaluate import predict
from tests.conftest import MarkReader, TinyNet
from tests.values import attack_value


def pixels(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.uint8).reshape(1, 1, 1, -1)


def test_bits_by_hand() -> None:
    """Two bits have the levels 0, 85, 170, 255; one bit has 0 and 255; eight change nothing."""
    row = pixels(0, 42, 43, 127, 128, 255)
    assert preprocess(row, "bits", 2).flatten().tolist() == [0, 0, 85, 85, 170, 255]
    assert preprocess(row, "bits", 1).flatten().tolist() == [0, 0, 0, 0, 255, 255]
    assert torch.equal(preprocess(row, "bits", 8), row)


def test_flip_by_hand() -> None:
    assert preprocess(pixels(1, 2, 3), "flip").flatten().tolist() == [3, 2, 1]


def test_blur_by_hand() -> None:
    """A white dot on black under sigma 1: the kernel's middle weight is 0.3991, squared 0.1592; times 255 is 41."""
    dot = torch.zeros(1, 3, 9, 9, dtype=torch.uint8)
    dot[..., 4, 4] = 255
    weights = torch.exp(-0.5 * torch.arange(-3.0, 4.0) ** 2)
    middle, beside = float(weights[3] / weights.sum()), float(weights[2] / weights.sum())
    blurred = preprocess(dot, "blur", 1.0)
    assert int(blurred[0, 1, 4, 4]) == round(255 * middle**2) == 41
    assert int(blurred[0, 1, 4, 3]) == int(blurred[0, 1, 5, 4]) == round(255 * middle * beside)
    flat = torch.full((2, 3, 5, 5), 77, dtype=torch.uint8)
    assert torch.equal(preprocess(flat, "blur", 2.0), flat)


def test_noise_has_the_deviation_asked_for_and_repeats() -> None:
    grey = torch.full((4, 3, 64, 64), 128, dtype=torch.uint8)
    noisy = preprocess(grey, "noise", 0.1)
    assert float((noisy.float() - 128).std()) == pytest.approx(25.5, rel=0.02)
    assert torch.equal(noisy, preprocess(grey, "noise", 0.1))
    assert torch.equal(preprocess(grey, "noise", 0.0), grey)


@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_keeps_flat_images_and_loses_more_at_lower_quality(channels: int) -> None:
    flat = torch.full((2, channels, 16, 16), 128, dtype=torch.uint8)
    assert torch.equal(preprocess(flat, "jpeg", 75), flat)
    image = torch.randint(0, 256, (2, channels, 16, 16), dtype=torch.uint8)
    lost = [float((preprocess(image, "jpeg", quality).float() - image).abs().mean()) for quality in (95, 50, 5)]
    assert lost == sorted(lost)
    assert lost[0] < lost[2]


@pytest.mark.parametrize("transform", list(TRANSFORMS))
def test_strengths_go_from_mild_to_strong_and_nothing_is_changed_in_place(transform: str, data: ImageData) -> None:
    images = data.images[:8]
    before = images.clone()
    kind = TRANSFORMS[transform]
    lost = [float((preprocess(images, transform, each).float() - before).abs().mean()) for each in kind.strengths]
    assert lost == sorted(lost)
    assert torch.equal(images, before)
    assert kind.fixed in kind.strengths
    changed = preprocess(images, transform)
    assert (changed.dtype, changed.shape) == (torch.uint8, images.shape)
    assert preprocess(images[:0], transform).shape == images[:0].shape


class Counting:
    """A suspect that is no module."""

    def predict(self, images: Tensor) -> Tensor:
        self.seen = images
        return torch.zeros(len(images), dtype=torch.int64)


def test_the_wrapper_around_any_suspect(net: TinyNet, data: ImageData) -> None:
    images = data.images[:16]
    suspect = Counting()
    assert Preprocessed(suspect, "flip").predict(images).tolist() == [0] * 16
    assert torch.equal(suspect.seen, images.flip(-1))
    wrapped = Preprocessed(net, "bits", 2)
    assert torch.equal(wrapped.predict(images), predict(net, preprocess(images, "bits", 2)))


def test_the_wrapper_called_as_a_module_with_normalised_images(net: TinyNet, data: ImageData) -> None:
    """Both ways in give the same logits: pixels are recovered exactly from what was normalised."""
    by = ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
    images = data.images[:8]
    wrapped = Preprocessed(net.eval(), "jpeg", 50, normalize=by)
    wanted = net(normalise(to_float(preprocess(images, "jpeg", 50)), by))
    torch.testing.assert_close(wrapped(normalise(to_float(images), by)), wanted)
    assert torch.equal(predict(wrapped, images, normalize=by), wrapped.predict(images))


def test_the_attack_leaves_the_weights_and_names_the_preprocessing(net: TinyNet, data: ImageData) -> None:
    attacked = attack(net, data, attack_value("preprocess", transform="noise", ba_drop=1.0), device="cpu")
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in attacked.model.state_dict().items())
    assert attacked.record.metrics["preprocessing"] == {"transform": "noise", "strength": 0.2}
    assert attacked.record.images == (6 + 1 + 5) * len(data)
    every = attacked.record.metrics["transforms"]
    assert [(row["transform"], row["strength"]) for row in every] == [
        (name, kind.fixed) for name, kind in TRANSFORMS.items()
    ]
    for row in every:
        changed = preprocess(data.images, row["transform"], row["strength"])
        with torch.no_grad():
            right = net.eval()(changed.float() / 255).argmax(1) == data.labels
        assert row["accuracy"] == pytest.approx(float(right.double().mean())), row["transform"]
    curve = attacked.curve
    assert curve is not None
    assert (curve.name, curve.values, curve.chosen) == ("noise", TRANSFORMS["noise"].strengths, 0.2)
    again = Record.from_json(attacked.record.to_json())
    model = deployed(attacked.model, again)
    assert isinstance(model, Preprocessed)
    assert (model.transform, model.strength) == ("noise", 0.2)
    assert deployed(net, Record(verb="embed", method="app", settings={}, seed=0)) is net


def test_recipes(net: TinyNet, data: ImageData) -> None:
    paper = attack(net, data, attack_value("preprocess", protocol="paper"), device="cpu")
    assert paper.record.metrics["preprocessing"] == {"transform": "jpeg", "strength": 75}
    own = attack(net, data, attack_value("preprocess", strength=60), device="cpu").record.metrics["preprocessing"]
    assert own["strength"] == 60
    assert InputPreprocessing(transform="bits").protocol == "sound"


def test_a_mark_that_needs_exact_pixels_is_lost(key: indelible.Key, test_data: ImageData) -> None:
    """The evaluator asks through the wrapper: the weights still carry the mark, the deployed model does not show it."""
    reader = MarkReader()
    plain, marked = test_data.images[:40], key.samples(test_data, purpose="verify", count=40)
    changed = (marked.images != test_data.images[marked.carriers]).any(1)
    reader.mask = changed.all(0)
    reader.colour = to_float(marked.images)[0][:, reader.mask][:, :1].mul(255).round()
    assert plain.shape == marked.images.shape
    before = indelible.verify(reader, key, test_data)
    attacked = attack(reader, test_data, "preprocess", device="cpu")
    after = indelible.verify(deployed(attacked.model, attacked.record), key, test_data)
    assert indelible.verify(attacked.model, key, test_data).wsr == before.wsr == 1.0
    assert after.wsr < 0.5
    assert after.ba is not None
    assert before.ba is not None
    assert after.ba > before.ba - 0.03


def test_refusals(net: TinyNet) -> None:
    with pytest.raises(InputError, match="transform 'gif'"):
        Preprocessed(net, "gif")
    with pytest.raises(InputError, match=r"1\.\.100"):
        InputPreprocessing(transform="jpeg", strength=0)
    with pytest.raises(InputError, match="predict"):
        Preprocessed("model.pt", "flip")
    with pytest.raises(InputError, match="1 or 3 channels"):
        preprocess(torch.zeros(1, 2, 8, 8, dtype=torch.uint8), "jpeg")
