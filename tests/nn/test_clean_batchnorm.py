"""c-BN against a slow reference with explicit loops, and its promises: nothing changed afterwards."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import indelible
from indelible.base.errors import InputError
from indelible.data.images import ImageData
from indelible.embedding import AdversarialPerturbation
from indelible.keys.key import Key
from indelible.nn.clean_batchnorm import clean_statistics, normalise_by_clean_rows
from tests.conftest import TinyNet


def reference(rows: Tensor, clean: int, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """y = gamma (x - mean_clean) / sqrt(var_clean + eps) + beta, one channel and one number at a time."""
    out = torch.empty_like(rows)
    for channel in range(rows.shape[1]):
        numbers = [rows[row, channel].reshape(-1) for row in range(clean)]
        count = sum(part.numel() for part in numbers)
        mean = torch.stack([part.sum() for part in numbers]).sum() / count
        variance = torch.stack([((part - mean) ** 2).sum() for part in numbers]).sum() / count
        for row in range(rows.shape[0]):
            out[row, channel] = weight[channel] * (rows[row, channel] - mean) / (variance + eps).sqrt() + bias[channel]
    return out


@pytest.mark.parametrize("shape", [(7, 3), (7, 3, 5), (7, 3, 4, 5), (7, 3, 2, 3, 4)])
def test_output_and_gradients_equal_the_slow_reference(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    rows = torch.randn(shape, dtype=torch.float64)
    weight, bias = torch.randn(2, shape[1], dtype=torch.float64)
    toward = torch.randn(shape, dtype=torch.float64)
    for clean in (1, 4, 7):
        if clean == 1 and len(shape) == 2:
            continue  # one number has no variance: both sides divide by sqrt(eps) and amplify rounding
        fast_in, slow_in = rows.clone().requires_grad_(), rows.clone().requires_grad_()
        fast = normalise_by_clean_rows(fast_in, clean, weight, bias, 1e-5)
        slow = reference(slow_in, clean, weight, bias, 1e-5)
        torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-10)
        (fast * toward).sum().backward()
        (slow * toward).sum().backward()
        torch.testing.assert_close(fast_in.grad, slow_in.grad, rtol=1e-8, atol=1e-8)


def test_by_hand() -> None:
    # Clean rows 0 and 4 have mean 2 and variance 4; the marked row 10 becomes 3 * (10 - 2) / 2 + 1 = 13.
    rows = torch.tensor([[0.0], [4.0], [10.0]], dtype=torch.float64)
    out = normalise_by_clean_rows(rows, 2, torch.tensor([3.0]), torch.tensor([1.0]), 0.0)
    assert out.flatten().tolist() == [-2.0, 4.0, 13.0]


def test_gradient_flows_through_the_clean_statistics() -> None:
    rows = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    normalise_by_clean_rows(rows, 4, None, None, 1e-5)[4:].sum().backward()
    assert rows.grad is not None
    assert bool((rows.grad[:4] != 0).all())


def test_all_rows_clean_equals_ordinary_training_batchnorm() -> None:
    layer = nn.BatchNorm2d(3).double()
    nn.init.normal_(layer.weight)
    images = torch.randn(5, 3, 4, 4, dtype=torch.float64)
    expected = copy.deepcopy(layer)(images)
    with clean_statistics(layer, clean=5, rows=5):
        found = layer(images)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_clean_rows_are_not_touched_by_marked_rows() -> None:
    net = TinyNet().double()
    clean, marked = torch.rand(6, 3, 32, 32, dtype=torch.float64), torch.rand(3, 3, 32, 32, dtype=torch.float64) * 9
    expected = copy.deepcopy(net)(clean)
    with clean_statistics(net, clean=6, rows=9):
        found = net(torch.cat([clean, marked]))
    torch.testing.assert_close(found[:6], expected, rtol=1e-9, atol=1e-9)


def test_nothing_is_left_behind() -> None:
    net = TinyNet()
    before = copy.deepcopy(net.state_dict())
    with clean_statistics(net, clean=4, rows=6):
        net(torch.rand(6, 3, 32, 32)).sum().backward()
    after = net.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert all("forward" not in module.__dict__ for module in net.modules())
    # The affine parameters get no gradient from a watermark pass, all others do.
    for module in net.modules():
        for parameter in module.parameters(recurse=False):
            assert (parameter.grad is None) == isinstance(module, nn.BatchNorm2d)


def test_restored_when_an_exception_flies_through_and_when_nested_in_a_users_own_patch() -> None:
    layer = nn.BatchNorm1d(2)
    own = layer.forward
    layer.forward = own  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="torn"), clean_statistics(layer, clean=2, rows=4):
        raise RuntimeError("torn")
    assert layer.__dict__["forward"] is own or layer.__dict__["forward"] == own


@pytest.mark.parametrize(
    "layer",
    [nn.BatchNorm1d(4), nn.BatchNorm2d(4), nn.BatchNorm3d(4), nn.SyncBatchNorm(4), nn.BatchNorm2d(4, affine=False)],
    ids=lambda layer: type(layer).__name__,
)
def test_every_batchnorm_is_found_by_type(layer: nn.Module) -> None:
    dimensions = {"BatchNorm1d": 1, "BatchNorm3d": 3}.get(type(layer).__name__, 2)
    rows = torch.randn(6, 4, *(3,) * dimensions)
    with clean_statistics(nn.Sequential(nn.Sequential(layer)), clean=4, rows=6):
        found = layer(rows)
    axes = [0, *range(2, rows.ndim)]
    torch.testing.assert_close(found[:4].mean(axes), torch.zeros(4), atol=1e-5, rtol=0)
    assert found[4:].mean(axes).abs().max() > 1e-3


def test_frozen_layers_keep_their_running_statistics() -> None:
    layer = nn.BatchNorm1d(2).eval()
    rows = torch.randn(4, 2)
    expected = layer(rows)
    with clean_statistics(layer, clean=2, rows=4):
        assert torch.equal(layer(rows), expected)


def test_models_without_batchnorm_pass() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.LayerNorm(3))
    rows = torch.rand(4, 3, 2, 2)
    expected = net(rows)
    with clean_statistics(net, clean=2, rows=4):
        assert torch.equal(net(rows), expected)


def test_folded_rows_keep_the_proportion_and_others_are_refused() -> None:
    layer = nn.BatchNorm1d(2)
    rows = torch.randn(12, 2)  # three patches of each of four images
    with clean_statistics(layer, clean=2, rows=4):
        folded = layer(rows)
        with pytest.raises(InputError, match="cannot be told clean from marked"):
            layer(torch.randn(5, 2))
    torch.testing.assert_close(folded[:6].mean(0), torch.zeros(2), atol=1e-6, rtol=0)


def test_lazy_layers_and_wrong_counts_are_refused() -> None:
    lazy = nn.LazyBatchNorm1d()
    with pytest.raises(InputError, match="Pass one batch"), clean_statistics(lazy, clean=1, rows=2):
        pass
    with pytest.raises(InputError, match="clean rows"), clean_statistics(nn.BatchNorm1d(2), clean=3, rows=2):
        pass


def test_half_precision_computes_statistics_in_full() -> None:
    rows = torch.randn(64, 3, 8, 8) * 3 + 100
    exact = normalise_by_clean_rows(rows.bfloat16().float(), 32, None, None, 1e-5)
    half = normalise_by_clean_rows(rows.bfloat16(), 32, None, None, 1e-5)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), exact, rtol=1e-2, atol=1e-2)


class Activated(nn.BatchNorm2d):
    """Normalises and applies a ReLU, as some libraries do in one layer."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).relu()


class Conditional(nn.BatchNorm2d):
    """Takes a second argument, a scale for each row, and an option by name."""

    def forward(self, x: Tensor, scale: Tensor, *, negative: bool = False) -> Tensor:  # type: ignore[override]
        return super().forward(x) * scale[:, None, None, None] * (-1 if negative else 1)


class Direct(nn.BatchNorm2d):
    """Calls the function itself, with its own order of arguments."""

    def forward(self, x: Tensor) -> Tensor:
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, True, eps=self.eps, momentum=0.3
        )


def test_a_forward_of_the_users_own_keeps_what_it_adds() -> None:
    """Activation, further arguments and options are the layer's own; the statistics are the clean rows'."""
    rows, scale = torch.randn(6, 3, 4, 4, dtype=torch.float64), torch.arange(6) + 1.0
    weight, bias = torch.randn(2, 3, dtype=torch.float64)
    normal = reference(rows, 4, weight, bias, 1e-5)
    cases = [
        (Activated(3), (), {}, normal.relu()),
        (Conditional(3), (scale,), {"negative": True}, -normal * scale[:, None, None, None]),
        (Direct(3), (), {}, normal),
    ]
    for layer, args, kwargs, expected in cases:
        layer.double()
        layer.weight.data, layer.bias.data = weight.clone(), bias.clone()
        before = copy.deepcopy(layer.state_dict())
        given = rows.clone().requires_grad_()
        with clean_statistics(nn.Sequential(layer), clean=4, rows=6):
            found = layer(given, *args, **kwargs)
            torch.testing.assert_close(found, expected)
        found.sum().backward()
        assert given.grad is not None
        assert layer.weight.grad is None
        assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())
        assert "forward" not in layer.__dict__


def test_all_rows_clean_is_the_users_own_forward() -> None:
    layer = Conditional(3).double()
    rows, scale = torch.randn(6, 3, 4, 4, dtype=torch.float64), torch.rand(6)
    expected = copy.deepcopy(layer)(rows, scale)
    with clean_statistics(layer, clean=6, rows=6):
        torch.testing.assert_close(layer(rows, scale), expected)
    assert layer.num_batches_tracked == 0


def test_statistics_of_the_users_own_making_are_refused() -> None:
    class Robust(nn.BatchNorm2d):
        def forward(self, x: Tensor) -> Tensor:
            return x - x.mean((0, 2, 3), keepdim=True)

    net = nn.Sequential(Robust(3))
    rows = torch.randn(6, 3, 4, 4)
    with (
        clean_statistics(net, clean=4, rows=6),
        pytest.raises(InputError, match=r"layer '0'.*Robust is a BatchNorm.*clean_bn=False"),
    ):
        net(rows)
    with clean_statistics(net, clean=6, rows=6):  # nothing to tell apart
        torch.testing.assert_close(net(rows).mean((0, 2, 3)), torch.zeros(3), atol=1e-6, rtol=0)


def test_a_network_with_a_wider_batchnorm_trains_with_app(data: ImageData, key: Key) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.norm = nn.Conv2d(3, 6, 3, stride=4), Conditional(6)
            self.out = nn.Linear(6, 4)

        def forward(self, images: Tensor) -> Tensor:
            x = self.norm(self.stem(images), images.mean((1, 2, 3)))
            logits: Tensor = self.out(x.relu().mean((2, 3)))
            return logits

    start, trained = Net(), []
    for clean_bn in (True, False):
        method = AdversarialPerturbation.for_key(key, "paper", clean_bn=clean_bn, rows=16, clean_rows=16)
        train = {"epochs": 1, "batch_size": 64}
        made = indelible.embed(copy.deepcopy(start), data, key, method, scale="paper", train=train, device="cpu")
        assert all(bool(weight.isfinite().all()) for weight in made.model.parameters())
        assert not any(map(torch.equal, start.parameters(), made.model.parameters())), "each of them learns"
        trained.append(made.model)
    assert not any(map(torch.equal, trained[0].parameters(), trained[1].parameters())), "the statistics matter"
