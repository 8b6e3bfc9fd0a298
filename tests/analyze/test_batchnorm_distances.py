"""BatchNorm statistics against a direct computation, and distances by hand."""

import math

import pytest
import torch

from indelible.analyze.analysis import read_analysis, write_analysis
from indelible.analyze.batchnorm_distances import Batchnorm, BatchNormSettings, batchnorm, shift_of
from indelible.analyze.marked_model import MarkedModel
from indelible.base.errors import InputError
from tests.analyze.marked_models import plain_subject


def test_distances_by_hand() -> None:
    """Means off by 3 at standard deviation 1, and by 0 at 2; variances 4 against 1, and equal."""
    clean = (torch.tensor([0.0, 1.0]).double(), torch.tensor([1.0, 4.0]).double())
    marked = (torch.tensor([3.0, 1.0]).double(), torch.tensor([4.0, 4.0]).double())
    found = shift_of("layer", clean, marked)
    assert found.mean_shift == pytest.approx(math.sqrt(9 / 2))
    assert found.variance_ratio == pytest.approx(2.0)  # exp of the mean of log 4 and log 1
    assert found.distance == pytest.approx(math.sqrt((9 + 1) / 5))
    assert shift_of("same", clean, clean).distance == 0.0


def test_the_first_layer_against_a_direct_computation() -> None:
    subject = plain_subject()
    found = batchnorm([subject], BatchNormSettings(layer=1, images=1000)).models[0]
    samples = subject.key.samples(subject.test, purpose="verify")
    assert isinstance(subject.model, torch.nn.Module)
    convolution = next(layer for layer in subject.model.modules() if isinstance(layer, torch.nn.Conv2d))
    with torch.no_grad():
        reached = convolution(samples.images.float() / 255)
    torch.testing.assert_close(
        torch.tensor(found.marked_mean), reached.mean((0, 2, 3)), rtol=1e-4, atol=1e-5, check_dtype=False
    )
    assert found.layer == "features.1"
    assert found.number == 1
    assert [layer.channels for layer in found.layers] == [8, 16]


def test_the_default_layer_and_what_is_refused() -> None:
    subject = plain_subject()
    assert batchnorm([subject], BatchNormSettings(images=40)).models[0].number == 2
    with pytest.raises(InputError, match=r"1\.\.2"):
        batchnorm([subject], BatchNormSettings(layer=3))
    bare = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 4))
    other = MarkedModel.of(bare, subject.key, test=subject.test, attacker=subject.attacker, owner=subject.owner)
    with pytest.raises(InputError, match="no BatchNorm"):
        batchnorm([other])
    with pytest.raises(InputError, match="at least one"):
        batchnorm([])


def test_it_is_kept_and_read_back(tmp_path: object) -> None:
    from pathlib import Path

    made = batchnorm([plain_subject()], BatchNormSettings(images=40))
    folder = write_analysis(Path(str(tmp_path)), made)
    assert read_analysis(folder) == made
    assert isinstance(made, Batchnorm)
    assert [(len(one.clean_mean), len(one.layers)) for one in made.models] == [(16, 2)]
    assert "BatchNorm layer 2" in made.sentences()[0]
