"""delta worked out by hand, and a scope that restores the bits."""

import pytest
import torch
from torch import Tensor, nn

from indelible.base.errors import UnknownNameError
from indelible.nn.layers import check_finite, perturbable_parameters
from indelible.nn.perturbation import adversarial_delta, perturbed


def test_delta_of_a_two_layer_network_by_hand() -> None:
    """y = v * (w . x), loss = y, with w = (3, 4), v = 2, x = (1, 0).

    dL/dw = v x = (2, 0), dL/dv = w . x = 3; ||w|| = 5, ||v|| = 2.
    Per tensor: delta_w = eps * 5 * (1, 0), delta_v = eps * 2 * 1.
    Global: ||theta|| = sqrt(29), ||grad|| = sqrt(4 + 9) = sqrt(13); delta = eps * sqrt(29/13) * grad.
    """
    w = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
    v = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    loss = (v * (w @ torch.tensor([1.0, 0.0], dtype=torch.float64))).sum()
    gradients = torch.autograd.grad(loss, [w, v])
    per_tensor = adversarial_delta([w, v], gradients, 0.02, "tensor")
    torch.testing.assert_close(per_tensor[0], torch.tensor([0.1, 0.0], dtype=torch.float64))
    torch.testing.assert_close(per_tensor[1], torch.tensor([0.04], dtype=torch.float64))
    together = adversarial_delta([w, v], gradients, 0.02, "global")
    size = 0.02 * (29 / 13) ** 0.5
    torch.testing.assert_close(together[0], torch.tensor([2 * size, 0.0], dtype=torch.float64))
    torch.testing.assert_close(together[1], torch.tensor([3 * size], dtype=torch.float64))


@pytest.mark.parametrize("norm", ["tensor", "global"])
def test_size_is_relative(norm: str) -> None:
    weights = [torch.randn(4, 3), torch.randn(7)]
    gradients = [torch.randn(4, 3) * 1e-6, torch.randn(7) * 1e-6]
    deltas = adversarial_delta(weights, gradients, 0.1, norm)  # type: ignore[arg-type]
    if norm == "tensor":
        sizes = [float(delta.norm() / weight.norm()) for delta, weight in zip(deltas, weights, strict=True)]
    else:
        sizes = [
            float(torch.cat([d.flatten() for d in deltas]).norm() / torch.cat([w.flatten() for w in weights]).norm())
        ]
    assert sizes == pytest.approx([0.1] * len(sizes), rel=1e-5)


def test_zero_gradient_gives_no_perturbation_and_no_nan() -> None:
    deltas = adversarial_delta([torch.ones(3), torch.ones(2)], [torch.zeros(3), torch.ones(2)], 0.1)
    assert torch.equal(deltas[0], torch.zeros(3))
    assert bool(torch.isfinite(deltas[1]).all())
    assert adversarial_delta([], [], 0.1) == []


def test_gradients_that_are_one_tensor_are_scaled_once_each() -> None:
    """L = w . x + v . x: autograd gives both weights the same gradient; delta = 0.1 * ||weight|| * (0.6, 0.8)."""
    shared = torch.tensor([3.0, 4.0])
    gradients = [shared, shared]
    deltas = adversarial_delta([torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0])], gradients, 0.1, replace=True)
    assert deltas is gradients
    torch.testing.assert_close(deltas[0], torch.tensor([0.06, 0.08]))
    torch.testing.assert_close(deltas[1], torch.tensor([0.12, 0.16]))
    assert shared.tolist() == [3.0, 4.0]


def test_unknown_norm_lists_the_choices() -> None:
    with pytest.raises(UnknownNameError, match="choose one of global, tensor"):
        adversarial_delta([torch.ones(1)], [torch.ones(1)], 0.1, "l1")  # type: ignore[arg-type]


def test_perturbed_restores_to_the_bit_also_after_an_exception() -> None:
    torch.manual_seed(0)
    # Numbers for which (w + d) - d differs from w in floating point.
    weights = [nn.Parameter(torch.randn(50) * 1e-3), nn.Parameter(torch.randn(20, 3))]
    deltas = [torch.randn(50) * 1e3, torch.randn(20, 3)]
    before = [weight.detach().clone() for weight in weights]
    drift = (weights[0] + deltas[0]) - deltas[0]
    assert not torch.equal(drift, weights[0])
    with perturbed(weights, deltas):
        assert torch.equal(weights[0], before[0] + deltas[0])
    assert all(torch.equal(weight, old) for weight, old in zip(weights, before, strict=True))
    with pytest.raises(KeyboardInterrupt), perturbed(weights, deltas):
        raise KeyboardInterrupt
    assert all(torch.equal(weight, old) for weight, old in zip(weights, before, strict=True))
    # The second delta does not fit: the first weight, moved by then, is put back as well.
    with pytest.raises(RuntimeError, match="size"), perturbed(weights, [deltas[0], torch.ones(7)]):
        pass
    assert all(torch.equal(weight, old) for weight, old in zip(weights, before, strict=True))


def test_gradients_inside_belong_to_the_perturbed_weights() -> None:
    weight = nn.Parameter(torch.tensor([2.0]))
    with perturbed([weight], [torch.tensor([1.0])]):
        (weight**2).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [6.0]
    assert weight.tolist() == [2.0]


def test_perturbable_parameters_are_chosen_by_type() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bnlike = nn.Linear(2, 2)  # "bn" in the name, but not a BatchNorm
            self.downsample = nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2))  # a BatchNorm without "bn"
            self.norm = nn.GroupNorm(1, 2)
            self.frozen = nn.Linear(2, 2)
            self.frozen.requires_grad_(False)
            self.tied = self.bnlike

    model = Block()
    chosen = perturbable_parameters(model)
    expected: list[Tensor] = [*model.bnlike.parameters(), *model.downsample[0].parameters()]
    assert {id(parameter) for parameter in chosen} == {id(parameter) for parameter in expected}
    assert len(chosen) == 4


def test_check_finite_names_the_tensor() -> None:
    norm = nn.BatchNorm1d(2)
    model = nn.Sequential(nn.Linear(2, 2), norm)
    check_finite(model)
    assert norm.running_var is not None
    norm.running_var[0] = float("nan")
    with pytest.raises(ValueError, match=r"'1\.running_var'"):
        check_finite(model)
