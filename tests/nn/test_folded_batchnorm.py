"""BatchNorm folded into convolutions: the map by hand, whole networks, and what must not be folded."""

import copy

import pytest
import torch
from torch import Tensor, nn

from indelible.models import build_model
from indelible.nn.folded_batchnorm import folded


def trained_statistics(model: nn.Module) -> nn.Module:
    """Give every BatchNorm layer statistics and an affine map of its own."""
    random = torch.Generator().manual_seed(1)
    layers = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert layers
    for layer in layers:
        for tensor in (layer.running_mean, layer.weight.data, layer.bias.data):
            assert tensor is not None
            tensor.copy_(torch.randn(tensor.shape, generator=random))
        assert layer.running_var is not None
        layer.running_var.copy_(0.5 + torch.rand(layer.running_var.shape, generator=random))
    return model


def norms(model: nn.Module) -> int:
    """Count the BatchNorm layers that a pass calls."""
    called: list[nn.Module] = []
    layers = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    hooks = [layer.register_forward_hook(lambda layer, *_: called.append(layer)) for layer in layers]
    model(torch.zeros(1, 3, 32, 32, dtype=next(model.parameters()).dtype))
    for hook in hooks:
        hook.remove()
    return len(called)


def test_one_convolution_by_hand() -> None:
    """Weight 3, bias 1, mean 2, variance 4 - eps, scale 6, shift 5: s = 3, so weight 9 and bias 3 (1 - 2) + 5 = 2."""
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1), nn.Flatten())
    convolution, norm = model[0], model[1]
    assert isinstance(convolution, nn.Conv2d)
    assert isinstance(norm, nn.BatchNorm2d)
    assert convolution.bias is not None
    assert norm.running_mean is not None
    assert norm.running_var is not None
    convolution.weight.data.fill_(3.0)
    convolution.bias.data.fill_(1.0)
    norm.running_mean.fill_(2.0)
    norm.running_var.fill_(4.0 - norm.eps)
    norm.weight.data.fill_(6.0)
    norm.bias.data.fill_(5.0)
    found = folded(model, torch.ones(2, 1, 1, 1))
    values = torch.tensor([[[[0.0]]], [[[1.0]]]])
    torch.testing.assert_close(found(values).flatten(), torch.tensor([2.0, 11.0]))
    assert not any(parameter.requires_grad for parameter in found.parameters())


@pytest.mark.parametrize(
    ("name", "count"),
    [("resnet-mini", 9), ("resnet-w16-s2", 13), ("resnet-18", 20), ("vgg-16", 13), ("mobilenet-v2", 52)],
)
def test_whole_networks(name: str, count: int) -> None:
    """No BatchNorm is left, logits and input gradients are the model's own, and the model is as it was."""
    model = trained_statistics(build_model(name, classes=10, shape=(3, 32, 32), seed=0).double())
    before = {key: value.clone() for key, value in model.state_dict().items()}
    images = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = folded(model, images)
    assert model.training
    assert (norms(copy.deepcopy(model)), norms(found)) == (count, 0)
    model.eval()
    one, other = images.clone().requires_grad_(), images.clone().requires_grad_()
    expected, logits = model(one), found(other)
    torch.testing.assert_close(logits, expected, rtol=1e-8, atol=1e-8)
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(3))
    ((expected * weights).sum() + (logits * weights).sum()).backward()
    assert one.grad is not None
    assert other.grad is not None
    torch.testing.assert_close(other.grad, one.grad, rtol=1e-6, atol=1e-8)
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key])


class Shared(nn.Module):
    """One convolution called twice, with a norm of its own after each call."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 3, 3, padding=1)
        self.first, self.second = nn.BatchNorm2d(3), nn.BatchNorm2d(3)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        made: Tensor = self.second(self.convolution(self.first(self.convolution(images))))
        return made.mean((2, 3))


class Looked(nn.Module):
    """What the convolution gives is used beside the norm as well."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        made: Tensor = self.convolution(images)
        both: Tensor = made + self.norm(made)
        return both.mean((2, 3))


class Doubling(nn.Conv2d):
    """A convolution of one's own."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """Return twice the convolution."""
        return 2 * super().forward(input)


class Own(Looked):
    """A subclass of torch's convolution before a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = Doubling(3, 3, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        made: Tensor = self.norm(self.convolution(images))
        return made.mean((2, 3))


class Branching(Looked):
    """Looks at values, which tracing cannot follow."""

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        made: Tensor = self.norm(self.convolution(images)).mean((2, 3))
        return made if float(made.detach().sum()) > 0 else -made


@pytest.mark.parametrize("kind", [Shared, Looked, Own, Branching])
def test_what_is_not_folded(kind: type[nn.Module]) -> None:
    """Shared, otherwise used and own convolutions, and networks that cannot be traced, keep their norms."""
    torch.manual_seed(0)
    model = trained_statistics(kind())
    images = torch.rand(2, 3, 32, 32)
    found = folded(model, images)
    assert norms(found) == norms(model.eval())
    torch.testing.assert_close(found(images), model(images))


def test_a_copy_that_differs_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folding gone wrong is noticed on the probe."""
    from indelible.nn import folded_batchnorm

    monkeypatch.setattr(folded_batchnorm, "fuse_conv_bn_eval", lambda convolution, norm: convolution)
    model = trained_statistics(build_model("resnet-mini", classes=10, shape=(3, 32, 32), seed=0))
    images = torch.rand(2, 3, 32, 32)
    found = folded(model, images)
    assert norms(found) > 0
    torch.testing.assert_close(found(images), model.eval()(images))


def test_an_error_of_the_model_itself_is_not_swallowed() -> None:
    """Only tracing may fail in silence."""
    model = build_model("resnet-mini", classes=10, shape=(3, 32, 32), seed=0)
    with pytest.raises(RuntimeError, match="channels"):
        folded(model, torch.rand(2, 5, 32, 32))
