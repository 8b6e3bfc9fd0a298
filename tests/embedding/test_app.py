"""The APP step against a straight transcription of Algorithm 1, in double precision."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import indelible
from indelible.base.errors import InputError, UnknownNameError
from indelible.data.images import ImageData
from indelible.embedding import watermark_passes
from indelible.embedding.app import AdversarialPerturbation
from indelible.embedding.mixing import MarkedBatches, StampedBatches
from indelible.embedding.watermark_passes import WatermarkPasses, clean_rows, watermark_loss
from indelible.keys.key import Key
from indelible.nn.perturbation import add_worst_neighbour_gradient
from tests.conftest import SECRET, SHAPE, TinyNet, stripes
from tests.values import method_value


def batchnorm_by_hand(layer: nn.BatchNorm2d, rows: Tensor, clean: int) -> Tensor:
    mean = rows[:clean].mean((0, 2, 3), keepdim=True)
    variance = ((rows[:clean] - mean) ** 2).mean((0, 2, 3), keepdim=True)
    gamma, beta = layer.weight.detach()[None, :, None, None], layer.bias.detach()[None, :, None, None]
    return gamma * (rows - mean) / (variance + layer.eps).sqrt() + beta


def forward_by_hand(net: TinyNet, weights: dict[str, Tensor], rows: Tensor, clean: int) -> Tensor:
    """TinyNet written out, with given weights and c-BN."""
    x = F.conv2d(rows, weights["features.0.weight"], stride=2, padding=1)
    x = F.relu(batchnorm_by_hand(net.features[1], x, clean))  # type: ignore[arg-type]
    x = F.conv2d(x, weights["features.3.weight"], stride=2, padding=1)
    x = F.relu(batchnorm_by_hand(net.features[4], x, clean))  # type: ignore[arg-type]
    x = F.adaptive_avg_pool2d(x, 2).flatten(1)
    return x @ weights["head.weight"].T + weights["head.bias"]


def algorithm_one(
    net: TinyNet, images: Tensor, labels: Tensor, marked: Tensor, wm_labels: Tensor, method: AdversarialPerturbation
) -> dict[str, Tensor]:
    """Lines 3 to 7: returns g for every parameter."""
    plain = copy.deepcopy(net)
    F.cross_entropy(plain(images), labels).backward()  # line 4
    g = {name: parameter.grad.clone() for name, parameter in plain.named_parameters() if parameter.grad is not None}
    perturbed_names = ["features.0.weight", "features.3.weight", "head.weight", "head.bias"]
    theta = {name: value.detach().clone() for name, value in net.named_parameters() if name in perturbed_names}
    clean = images[: method.clean_rows]
    rows = torch.cat([clean, marked]) if method.clean_bn else marked
    counted = len(clean) if method.clean_bn else len(marked)

    def loss_at(weights: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(forward_by_hand(net, weights, rows, counted)[-len(marked) :], wm_labels)

    at = {name: value.clone().requires_grad_() for name, value in theta.items()}
    ascent = dict(zip(theta, torch.autograd.grad(loss_at(at), list(at.values())), strict=True))
    length = {name: float(value.norm()) for name, value in theta.items()}
    slope = {name: float(value.norm()) for name, value in ascent.items()}
    if method.norm == "global":
        length = dict.fromkeys(theta, sum(value**2 for value in length.values()) ** 0.5)
        slope = dict.fromkeys(theta, sum(value**2 for value in slope.values()) ** 0.5)
    delta = {name: method.eps * length[name] * ascent[name] / slope[name] for name in theta}  # line 6
    moved = {name: (theta[name] + delta[name]).requires_grad_() for name in theta}
    worst = torch.autograd.grad(method.alpha * loss_at(moved), list(moved.values()))  # line 7
    for name, gradient in zip(theta, worst, strict=True):
        g[name] = g[name] + gradient
    return g


def add_watermark_gradient(
    net: nn.Module, clean: Tensor, marked: Tensor, wm_labels: Tensor, method: AdversarialPerturbation
) -> None:
    add_worst_neighbour_gradient(
        net, lambda: watermark_loss(net, clean, marked, wm_labels, method.clean_bn), len(marked), alpha=method.alpha,
        eps=method.eps, norm=method.norm,
    )  # fmt: skip


@pytest.mark.parametrize("clean_bn", [True, False])
@pytest.mark.parametrize("norm", ["tensor", "global"])
@pytest.mark.parametrize("eps", [0.02, 0.5, 0.0])
def test_step_equals_the_transcription_of_algorithm_one(
    net: TinyNet, data: ImageData, key: Key, norm: Any, eps: float, clean_bn: bool
) -> None:
    net = net.double().train()
    method = AdversarialPerturbation(eps=eps, alpha=0.3, rows=8, clean_rows=12, norm=norm, clean_bn=clean_bn)
    images, labels = data.images[:20].double() / 255, data.labels[:20]
    samples = key.samples(data, purpose="embed", count=8)
    marked = samples.images.double() / 255
    expected = algorithm_one(net, images, labels, marked, samples.labels, method)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    F.cross_entropy(net(images), labels).backward()
    statistics = {name: value.clone() for name, value in net.state_dict().items()}
    add_watermark_gradient(net, images[:12], marked, samples.labels, method)
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-6, atol=1e-9, msg=name)
    # theta is restored to the bit, and only the ordinary pass moved the running statistics.
    for name, value in net.state_dict().items():
        assert torch.equal(value, statistics[name]), name
        if "running" not in name and "num_batches" not in name:
            assert torch.equal(value, before[name]), name


def test_a_net_without_batchnorm(data: ImageData, key: Key) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4)).double()
    samples = key.samples(data, purpose="embed", count=4)
    marked, clean = samples.images.double() / 255, data.images[:4].double() / 255
    weight, bias = (parameter.detach().clone().requires_grad_() for parameter in net.parameters())
    flat = marked.flatten(1)
    ascent = torch.autograd.grad(F.cross_entropy(flat @ weight.T + bias, samples.labels), [weight, bias])
    moved = [
        (value + 0.1 * value.norm() * gradient / gradient.norm()).detach().requires_grad_()
        for value, gradient in zip((weight, bias), ascent, strict=True)
    ]
    expected = torch.autograd.grad(F.cross_entropy(flat @ moved[0].T + moved[1], samples.labels), moved)
    add_watermark_gradient(net, clean, marked, samples.labels, AdversarialPerturbation(eps=0.1, alpha=1.0))
    for parameter, gradient in zip(net.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-6, atol=1e-12)


def test_mixed_batches_keep_the_rows_apart(net: TinyNet, data: ImageData, key: Key) -> None:
    """The loss of a mixed batch is that of the marked rows alone, whatever their number and order."""
    net = net.double().train()
    samples = key.samples(data, purpose="embed", count=6)
    clean, marked = data.images[:10].double() / 255, samples.images.double() / 255
    whole = watermark_loss(net, clean, marked, samples.labels)
    parts = [watermark_loss(net, clean, marked[i : i + 1], samples.labels[i : i + 1]) for i in (3, 1, 5, 0, 2, 4)]
    torch.testing.assert_close(whole, torch.stack(parts).mean(), rtol=1e-10, atol=1e-12)


def test_marked_rows_of_a_mixed_batch_are_no_clean_rows(net: TinyNet, data: ImageData, key: Key) -> None:
    """The step on a mixed batch equals Algorithm 1 with the statistics of the unmarked rows alone, as in the paper."""
    net = net.double().train()
    method = AdversarialPerturbation(eps=0.02, alpha=0.3, rows=8, clean_rows=12)
    samples = key.samples(data, purpose="embed", count=8)
    images, labels = data.images[:20].double() / 255, data.labels[:20].clone()
    taken = torch.tensor([0, 5, 6, 11])
    images[taken], labels[taken] = samples.images[:4].double() / 255, samples.labels[:4]
    free = torch.tensor([row for row in range(20) if row not in taken.tolist()])

    source = MarkedBatches(samples, 8, augmentation="none", seed=1)
    marked, wm_labels = source.batch(0, images)
    # By hand: the ordinary gradient of the whole batch, the watermark's with the first twelve unmarked rows.
    together = algorithm_one(net, images[free], labels[free], marked, wm_labels, method)
    apart, whole = copy.deepcopy(net), copy.deepcopy(net)
    F.cross_entropy(apart(images[free]), labels[free]).backward()
    F.cross_entropy(whole(images), labels).backward()

    F.cross_entropy(net(images), labels).backward()
    WatermarkPasses(net, method, source).backward(images, 0, unmarked=free)
    for name, parameter in net.named_parameters():
        expected = together[name] - apart.get_parameter(name).grad + whole.get_parameter(name).grad  # type: ignore[operator]
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-6, atol=1e-9, msg=name)

    # It is no small thing: with the first twelve rows as they come the watermark gradient is another one.
    other = copy.deepcopy(whole)
    WatermarkPasses(other, method, source).backward(images, 0)
    own = net.get_parameter("features.3.weight").grad - whole.get_parameter("features.3.weight").grad  # type: ignore[operator]
    wrong = other.get_parameter("features.3.weight").grad - whole.get_parameter("features.3.weight").grad  # type: ignore[operator]
    assert float((own - wrong).norm() / own.norm()) > 0.05


@pytest.mark.parametrize("mixed", [True, False])
def test_embedding_keeps_marked_rows_out_of_the_clean_ones(
    net: TinyNet, data: ImageData, key: Key, monkeypatch: pytest.MonkeyPatch, mixed: bool
) -> None:
    seen: list[Tensor] = []

    def keep(*arguments: Any) -> Tensor:
        seen.append(clean_rows(*arguments))
        return seen[-1]

    monkeypatch.setattr(watermark_passes, "clean_rows", keep)
    made = indelible.embed(
        net, data, key,
        method_value("app", key, fraction=0.2, rows=8, clean_rows=8, batch="mixed" if mixed else "clean"), scale="cpu",
        train={"epochs": 2, "augmentation": "none"},
    )  # fmt: skip
    assert made.samples is not None
    known = {image.numpy().tobytes() for image in made.samples.images}
    rows = (torch.cat(seen) * 255).round().to(torch.uint8)
    assert len(rows) == 2 * 5 * 8
    assert not known & {row.contiguous().numpy().tobytes() for row in rows}


def test_a_batch_of_marked_rows_alone_is_no_error(net: TinyNet, data: ImageData, key: Key) -> None:
    """They serve as clean rows: loss and gradients are those of a batch of which nothing is known."""
    source = MarkedBatches(key.samples(data, purpose="embed", count=8), 4)

    def passed(unmarked: Tensor | None) -> list[Tensor | None]:
        own = copy.deepcopy(net).train()
        passes = WatermarkPasses(own, AdversarialPerturbation(rows=4, clean_rows=4), source)
        loss = passes.backward(data.images[:3].float() / 255, 0, unmarked=unmarked)
        return [loss, *(weight.grad for weight in own.parameters())]

    found, expected = passed(torch.empty(0, dtype=torch.int64)), passed(None)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert found[0] is not None
    assert float(found[0]) > 0


def test_the_own_loop_can_name_its_marked_rows(net: TinyNet, data: ImageData, key: Key) -> None:
    images = data.images[:16].float() / 255
    marked = torch.zeros(16, dtype=torch.bool)
    marked[:4] = True
    found = []
    for batch, which in ((images, marked), (images[4:], None)):
        own = copy.deepcopy(net).train()
        indelible.APP(own, key, data, method=method_value("app", key, "paper", rows=8, clean_rows=8)).backward(
            batch, marked=which
        )
        found.append(own.head.weight.grad)
    assert found[0] is not None
    assert torch.equal(found[0], found[1])  # type: ignore[arg-type]


def test_dropout_masks_are_the_same_in_both_passes(data: ImageData, key: Key) -> None:
    class Watching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flat, self.drop, self.head = nn.Flatten(), nn.Dropout(0.5), nn.Linear(3 * 32 * 32, 4)
            self.masks: list[Tensor] = []

        def forward(self, images: Tensor) -> Tensor:
            dropped = self.drop(torch.ones_like(self.flat(images)))
            self.masks.append(dropped != 0)
            logits: Tensor = self.head(self.flat(images) * dropped)
            return logits

    net = Watching().train()
    mark = indelible.APP(net, key, data, method=method_value("app", key, "paper", rows=4, clean_rows=4))
    mark.backward(data.images[:4].float() / 255)
    mark.backward(data.images[:4].float() / 255)
    assert len(net.masks) == 4
    assert torch.equal(net.masks[0], net.masks[1])
    assert not torch.equal(net.masks[1], net.masks[2])


def test_own_loop_embeds_and_survives_exceptions(net: TinyNet, key: Key) -> None:
    data, test = stripes(320), stripes(160, seed=1)
    mark = indelible.APP(
        net,
        key,
        data,
        method=method_value("app", key, "paper", alpha=0.5, eps=0.02, rows=16, clean_rows=16, fraction=0.1),
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    images, labels = data.images.float() / 255, data.labels
    net.train()
    for step in range(40):
        rows = torch.randperm(320, generator=torch.Generator().manual_seed(step))[:64]
        optimizer.zero_grad()
        F.cross_entropy(net(images[rows]), labels[rows]).backward()
        mark.backward(images[rows])
        optimizer.step()
    verdict = indelible.verify(net, key, test)
    assert verdict.wsr > 0.9
    assert verdict.ba is not None
    assert verdict.ba > 0.9
    before = {name: value.clone() for name, value in net.state_dict().items()}
    calls: list[int] = []

    def fail(*_: object) -> None:
        calls.append(1)
        if len(calls) == 2:  # the first pass seeks delta, the second runs with the weights moved by it
            raise RuntimeError("out of memory")

    hook = net.head.register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        mark.backward(images[:8])
    hook.remove()
    with pytest.raises(InputError, match="got the shape"):
        mark.backward(images[:8, :2])
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all("forward" not in module.__dict__ for module in net.modules())


def test_every_k_steps_with_k_times_the_weight(net: TinyNet, data: ImageData, key: Key) -> None:
    images = data.images[:16].float() / 255

    def gradients(every: int, calls: int) -> list[Tensor]:
        own = copy.deepcopy(net).train()
        mark = indelible.APP(
            own, key, data, method=method_value("app", key, "paper", alpha=0.1, every=every, rows=8, clean_rows=8)
        )
        for _ in range(calls):
            mark.backward(images)
        return [torch.zeros_like(w) if w.grad is None else w.grad for w in own.parameters()]

    single, double = gradients(1, 1), gradients(2, 2)
    for once, twice in zip(single, double, strict=True):
        torch.testing.assert_close(2 * once, twice)


@pytest.mark.parametrize(("marks", "rows", "steps"), [(8, 16, 248), (16, 16, 992), (32, 32, 1984)])
def test_a_codebook_has_a_row_and_62_steps_for_each_mark(marks: int, rows: int, steps: int) -> None:
    defaults = AdversarialPerturbation.for_codebook(marks)
    assert (defaults["rows"], defaults["head_start"]) == (rows, steps)  # 8 marks: two rows each, half of 8 * 62


def test_a_head_start_raises_alpha_and_lets_it_fall() -> None:
    method = AdversarialPerturbation(alpha=0.03, head_start=3000, every=2)
    # 0.03 * 3000 / t, between 0.03 and 0.1; twice that once every second step has passes only.
    expected = {0: 0.1, 899: 0.1, 999: 0.09, 1499: 0.12, 2999: 0.06, 50_000: 0.06}
    assert {step: method.weight(step) for step in expected} == pytest.approx(expected)
    constant = AdversarialPerturbation(alpha=0.03, every=2)
    assert {constant.weight(step) for step in expected} == {0.06}
    passes = WatermarkPasses(TinyNet(), method, StampedBatches(Key.create(classes=4, shape=SHAPE), 8), first=10)
    assert [step for step in range(1005, 1020) if passes.due(step)] == [
        *range(1005, 1010),
        1010,
        1012,
        1014,
        1016,
        1018,
    ]
    # Of 4,010 steps with the first pass at 0: a thousand and half of the rest.
    assert method.extra_rows(4010) == pytest.approx(256 * (1000 + 3010 / 2) / 4010)
    assert method.extra_rows(800) == 256
    assert method.extra_rows() == 128
    assert AdversarialPerturbation(alpha=0.5, head_start=3000).weight(0) == 0.5  # never lowered
    with pytest.raises(InputError, match="head_start must be at least 0, got -1"):
        AdversarialPerturbation(head_start=-1)


def test_the_own_loop_follows_the_head_start(net: TinyNet, data: ImageData) -> None:
    book = Key.create(classes=4, shape=SHAPE, secret=SECRET)
    images, norms = data.images[:16].float() / 255, []
    for calls in (0, 5999):
        own = copy.deepcopy(net).train()
        mark = indelible.APP(own, book, method=method_value("app", book, "paper", rows=8, clean_rows=8, every=1))
        mark.load_state_dict({"calls": calls})
        loss = mark.backward(images)
        assert own.head.bias.grad is not None
        norms.append(float(own.head.bias.grad.norm() / loss))
    assert norms[0] / norms[1] > 1.5  # 0.1 against 0.03, at other marks


def test_state_goes_on_where_it_was(net: TinyNet, data: ImageData, key: Key) -> None:
    first = indelible.APP(net, key, data, method=method_value("app", key, "paper", rows=8, clean_rows=8))
    images = data.images[:16].float() / 255
    first.backward(images)
    second = indelible.APP(net, key, data, method=method_value("app", key, "paper", rows=8, clean_rows=8))
    second.load_state_dict(first.state_dict())
    assert second.calls == 1


def test_settings_are_checked_and_repr_rebuilds() -> None:
    value = AdversarialPerturbation(eps=0.01, norm="global")
    assert eval(repr(value)) == value  # noqa: S307 - that is the promise
    with pytest.raises(UnknownNameError, match=r"epsilon.*choose one of.*eps"):
        AdversarialPerturbation.of({"epsilon": 1})
    with pytest.raises(InputError, match="eps must be at least 0, got -1"):
        AdversarialPerturbation(eps=-1)
    with pytest.raises(UnknownNameError, match="clean, mixed"):
        AdversarialPerturbation(batch="all")  # type: ignore[arg-type]


@pytest.mark.parametrize("batch", ["mixed", "clean"])
def test_both_meanings_of_the_ordinary_batch(net: TinyNet, key: Key, batch: str) -> None:
    embedded = indelible.embed(
        net, stripes(320), key,
        method_value("app", key, "paper", alpha=0.5, rows=16, clean_rows=16, fraction=0.1, batch=batch), scale="paper",
        train={"epochs": 3, "lr": 0.1, "batch_size": 32}, test=stripes(160, seed=1), device="cpu",
    )  # fmt: skip
    assert embedded.record.metrics["wsr"] > 0.8
    assert type(embedded.model) is TinyNet
    assert list(embedded.model.state_dict()) == list(net.state_dict())
