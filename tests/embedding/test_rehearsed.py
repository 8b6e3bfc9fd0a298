"""The rehearsed step against a transcription of its equations in double precision, and what it refuses."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import indelible
from indelible.base.errors import InputError, UnknownNameError
from indelible.embedding import AdversarialPerturbation, RehearsedThief
from indelible.embedding.mixing import ForeignMarks, StampedBatches
from indelible.embedding.rehearsed import rehearsal_loss
from indelible.keys.key import Key
from indelible.nn.layers import perturbable_parameters
from tests.conftest import SECRET, SHAPE, TinyNet, stripes

EPS, ALPHA = 0.3, 0.2
BOOK = Key.create(classes=4, shape=SHAPE, secret=SECRET)


def logits_by_hand(net: nn.Module, rows: Tensor, clean: int) -> Tensor:
    """TinyNet with BatchNorm by the statistics of the first ``clean`` rows; affine parameters are constants."""
    values = rows
    for layer in net.features:  # type: ignore[union-attr]
        if isinstance(layer, nn.BatchNorm2d):
            mean = values[:clean].mean((0, 2, 3), keepdim=True)
            variance = ((values[:clean] - mean) ** 2).mean((0, 2, 3), keepdim=True)
            gamma, beta = (part.detach()[None, :, None, None] for part in (layer.weight, layer.bias))
            values = gamma * (values - mean) / (variance + layer.eps).sqrt() + beta
        else:
            values = layer(values)
    return net.head(values.flatten(1))  # type: ignore[no-any-return, operator]


@pytest.mark.parametrize("eps", [EPS, 0.0])
@pytest.mark.parametrize("rows", [8, 12, 4])
def test_step_equals_its_equations(net: TinyNet, eps: float, rows: int) -> None:
    net = net.double().train()
    data = stripes(20)
    images = data.images.double() / 255
    clean = images[:8]
    method = RehearsedThief(eps=eps, alpha=ALPHA, rows=rows, clean_rows=8)
    marked = StampedBatches(BOOK, rows, seed=5)
    passes = method.passes_over(net, BOOK, marked, 0, normalize=None, seed=5)
    wm_images, wm_labels = marked.batch(3, images)
    places = torch.arange(rows) % 8
    foreign = ForeignMarks(BOOK, seed=5).stamped(clean[places], 3)

    moved = copy.deepcopy(net)
    weights = perturbable_parameters(moved)
    logits = logits_by_hand(moved, torch.cat([clean, foreign]), 8)
    answers = logits[:8].detach().softmax(1)[places]
    thief = -(answers * logits[8:].log_softmax(1)).sum(1).mean()
    h = torch.autograd.grad(thief, weights)
    with torch.no_grad():
        for weight, slope in zip(weights, h, strict=True):
            weight.sub_(eps * weight.norm() * slope / slope.norm())
    loss = F.cross_entropy(logits_by_hand(moved, torch.cat([clean, wm_images]), 8)[8:], wm_labels)
    last = torch.autograd.grad(loss, weights)

    before = {name: value.clone() for name, value in net.state_dict().items()}
    found = passes.backward(images, 3)
    torch.testing.assert_close(found, loss.detach(), rtol=1e-8, atol=0)
    for weight, slope, end in zip(perturbable_parameters(net), h, last, strict=True):
        assert weight.grad is not None
        torch.testing.assert_close(weight.grad, ALPHA * (slope + end), rtol=1e-6, atol=1e-10)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_own_loop_takes_the_method_as_a_value(net: TinyNet) -> None:
    """The first call of a user's loop adds what the passes add; its rows are cropped and flipped before the mark."""
    net, twin = net.double().train(), copy.deepcopy(net).double().train()
    images, method = stripes(40).images.double() / 255, RehearsedThief.for_key(BOOK)
    loss = indelible.APP(net, BOOK, method=method, seed=2).backward(images)
    marked = StampedBatches(BOOK, method.rows, augmentation="crop-flip", seed=2)
    expected = method.passes_over(twin, BOOK, marked, 0, normalize=None, seed=2).backward(images, 0)
    assert float(loss) == float(expected) > 1.0
    for own, other in zip(perturbable_parameters(net), perturbable_parameters(twin), strict=True):
        assert torch.equal(own.grad, other.grad)  # type: ignore[arg-type]


def test_rehearsal_loss_by_hand() -> None:
    """Two classes; answers (3/4, 1/4) to the clean row, (1/2, 1/2) to the foreign one: log 2."""

    class Given(nn.Module):
        def forward(self, rows: Tensor) -> Tensor:
            return torch.stack([rows.flatten(1)[:, 0], torch.zeros(len(rows))], 1)

    clean, foreign = torch.full((1, 1, 1, 1), 3.0).log(), torch.zeros(1, 1, 1, 1)
    assert float(rehearsal_loss(Given(), clean, foreign)) == pytest.approx(0.693147, abs=1e-6)
    # The other way round: -(1/2 log 3/4 + 1/2 log 1/4); under class 1: -log 1/4.
    assert float(rehearsal_loss(Given(), foreign, clean)) == pytest.approx(0.836988, abs=1e-6)
    assert float(rehearsal_loss(Given(), foreign, clean, torch.tensor([1]))) == pytest.approx(1.386294, abs=1e-6)


def test_foreign_marks_are_never_the_owners() -> None:
    images = torch.zeros(200, *SHAPE)
    stamped = ForeignMarks(BOOK).stamped(images, 0)
    own = BOOK.codebook().stamps().apply(images[: BOOK.marks], torch.arange(BOOK.marks or 0), torch.arange(16))
    assert len(torch.unique(stamped.flatten(1), dim=0)) > 100
    assert not any(torch.equal(row, mark) for row in stamped for mark in own)
    assert torch.equal(stamped, ForeignMarks(BOOK).stamped(images, 0))
    assert not torch.equal(stamped, ForeignMarks(BOOK).stamped(images, 1))
    assert ForeignMarks(BOOK).classes(8, 0) is None


def test_foreign_families_get_random_classes() -> None:
    book = Key.create(kind="unrelated", classes=4, shape=SHAPE, marks=2, secret=SECRET)
    drawn = ForeignMarks(book).classes(400, 0)
    assert drawn is not None
    assert torch.bincount(drawn, minlength=4).tolist() == pytest.approx([100] * 4, abs=40)


def test_defaults_and_costs_are_those_of_app_but_for_eps() -> None:
    app, own = AdversarialPerturbation.for_key(BOOK), RehearsedThief.for_key(BOOK)
    assert {**app.to_json(), "eps": 0.02, "fraction": 0.01} == {**own.to_json(), "fraction": 0.01}
    assert own.extra_rows() == app.extra_rows() == 32
    assert RehearsedThief(eps=0.0).watermark_passes == 2


@pytest.mark.parametrize(
    ("settings", "message"), [({"fraction": 0.1}, "`fraction` and `batch`"), ({"batch": "clean"}, "`fraction`")]
)
def test_settings_without_effect_are_refused(net: TinyNet, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RehearsedThief(**settings).passes_over(net, BOOK, StampedBatches(BOOK, 4), 0, normalize=None, seed=0)


def test_a_key_with_one_class_is_refused(net: TinyNet, key: Key) -> None:
    with pytest.raises(InputError, match="'rehearsed' is for codebooks, and this key has fixed labels"):
        indelible.embed(net, stripes(64), key, "rehearsed", train={"epochs": 1}, device="cpu")
    with pytest.raises((InputError, UnknownNameError), match="recipe"):
        RehearsedThief.for_key(BOOK, recipe="light")
