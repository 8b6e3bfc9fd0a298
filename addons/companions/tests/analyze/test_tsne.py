"""t-SNE: features are what the last layer reads, numbers by hand, one map for each row."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from indelible.analyze import ANALYSES
from indelible.analyze.marked_model import MarkedModel
from indelible.base.errors import InputError, UnknownNameError
from indelible_companions.analyze.tsne import (
    Tsne,
    TsneSettings,
    features_of,
    last_layer,
    mixed_share,
    relative_spread,
    tsne,
)
from tests.analyze.marked_models import marked_subject, plain_subject
from tests.conftest import TinyNet

SMALL: dict[str, Any] = {"images": 24, "marked": 8, "perplexity": 5.0, "statistics": 32}


def test_features_are_what_the_last_layer_reads(net: TinyNet) -> None:
    images = torch.rand(6, 3, 32, 32)
    assert last_layer(net, images) == "head"
    found, answers = features_of(net, images.split(4), "head")
    net.eval()
    with torch.no_grad():
        torch.testing.assert_close(found, net.features(images))
        assert torch.equal(answers, net(images).argmax(1))
    headless = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 32), torch.nn.Flatten())
    with pytest.raises(InputError, match="no linear layer"):
        last_layer(headless, images)


def test_numbers_by_hand() -> None:
    """The mark lies at 0; its two nearest clean neighbours are at 1 (target) and -2 (other)."""
    clean, labels = torch.tensor([[1.0], [-2.0], [50.0]]), torch.tensor([0, 1, 1])
    assert mixed_share(clean, labels, torch.zeros(1, 1), target=0, neighbours=2) == 0.5
    assert relative_spread(torch.tensor([[0.0], [4.0]]), torch.tensor([[1.0], [2.0]])) == pytest.approx(4.0)
    assert relative_spread(torch.tensor([[0.0], [4.0]]), torch.tensor([[1.0]])) is None


def test_still(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    subject = marked_subject()
    made = tsne([subject], TsneSettings(**SMALL))
    (row,) = made.models
    (panel,) = row.panels
    assert (len(panel.clean), len(panel.marked), len(made.labels)) == (24, 8, 24)
    assert made == tsne([subject], TsneSettings(**SMALL))
    assert Tsne.from_json(made.to_json()) == made
    assert ANALYSES["tsne"].build.of_models([subject], SMALL, tmp_path) == made


@pytest.mark.parametrize("path", ["adversarial", "tuning"])
def test_a_path_begins_with_the_model_itself(path: Any) -> None:
    pytest.importorskip("sklearn")
    subject = marked_subject()
    settings = TsneSettings(path=path, panels=3, size=0.2, every=2, **SMALL)
    (row,) = tsne([subject], settings).models
    titles = [panel.title for panel in row.panels]
    assert titles == (["0", "0.2", "0.4"] if path == "adversarial" else ["0", "2", "4"])
    (still,) = tsne([subject], TsneSettings(**SMALL)).models
    assert (row.panels[0].wsr, row.panels[0].mixed) == (still.panels[0].wsr, still.panels[0].mixed)
    # The direction that removes the mark fastest takes it at once; four steps of fine-tuning do not.
    assert [panel.wsr for panel in row.panels] == ([1.0, 0.0, 0.0] if path == "adversarial" else [1.0, 1.0, 1.0])
    assert row.panels[-1].clean != row.panels[0].clean


def test_what_cannot_be_shown_together_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = plain_subject()
    from dataclasses import replace

    other = replace(subject, key=replace(subject.key, target=1))
    assert isinstance(other, MarkedModel)
    with pytest.raises(InputError, match="one at a time"):
        tsne([subject, other])
    with pytest.raises(UnknownNameError, match="adversarial"):
        TsneSettings(path="sideways")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="2 panels"):
        TsneSettings(path="tuning", panels=1)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(InputError, match=r"indelible-companions\[analysis\]"):
        tsne([subject])
