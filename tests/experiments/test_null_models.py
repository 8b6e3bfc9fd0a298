"""Null models and the forger at toy size: resumable, nothing claimed with derived keys, the naive rule gives way."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import forgery
from forgery import ForgerySettings, measure_forgery
from forgery_methods import MethodForgerySettings, measure_method_forgery
from indelible.base.errors import InputError
from independent_models import NullModels
from null_models import ClaimSettings, measure_null_models

SMALL = NullModels(
    count=2, images=256, train={"epochs": 1, "batch_size": 64, "augmentation": "none", "schedule": "one-cycle"}
)
CLAIMS = ClaimSettings(codebook=2, fixed=1, keyed=2, carriers=40, count=20, book_carriers=10)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder: Path = tmp_path_factory.mktemp("null") / "null-models"
    measure_null_models(folder, trained=SMALL, claims=CLAIMS)
    return folder


def test_claims_on_every_model_and_resumed(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import independent_models
    import null_models

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("done already")

    monkeypatch.setattr(independent_models, "train_unmarked", never)
    monkeypatch.setattr(null_models, "_claims", never)
    found = measure_null_models(trained, trained=SMALL, claims=CLAIMS)
    assert (found.models, found.verdicts, found.owned) == (2, 2 * 3 * (2 + 1 + 2), 0)
    assert found.bound == pytest.approx(1 - 0.05 ** (1 / 2))
    assert set(found.smallest_p) == {f"{labels} {kind}" for labels in ("codebook", "fixed", "keyed") for kind in
                                     ("content", "noise", "unrelated")}  # fmt: skip
    monkeypatch.undo()
    again = measure_null_models(
        trained, trained=SMALL, claims=ClaimSettings(codebook=0, fixed=0, keyed=1, carriers=40, count=20)
    )
    assert again.verdicts == 6, "other settings are not what was kept"
    # Six models are all the forger's own: refused before anything is trained.
    assert forgery.main(["--models", "6", "--folder", str(trained), "--quiet"]) == 2


def test_forged_claims(trained: Path) -> None:
    settings = ForgerySettings(
        surrogates=1, images=60, targets=(0, None), steps=15, key_draws=3, label_draws=30, eps=0.5
    )  # fmt: skip
    found = measure_forgery(trained, trained=SMALL, settings=settings)
    attempts = [row["attempt"] for row in found.rows]
    assert found.victims == 1
    assert len(set(attempts)) == 2 + 2 * 2 + 2 * 3, (
        "labels free and drawn; two kinds of codebook, two attempts; a trigger and two kinds of key for each target"
    )
    assert sum("any wrong answer" in attempt for attempt in attempts) == 3
    derived = [row["granted"] for row in found.rows if row["rule"] == "derived key"]
    assert derived == [0] * 5, "labels drawn; two kinds of key for each target"
    assert found.bound == pytest.approx(1e-6 * (3 * 30 + 2 * 2 * 3))
    itself = [row for row in found.rows if row["rule"] == "derived key, p times the draws"]
    assert [row["granted"] for row in itself] == [0, 0, 0, 0]
    assert all(row["smallest_p"] > 0.0005 for row in itself), "of 30 draws the best is about 1 in 30"
    json.dumps(found.rows)
    some = measure_forgery(trained, trained=SMALL, settings=settings, only="codebook *")
    assert some.rows == itself, "finished attempts are kept"
    assert some.bound == pytest.approx(1e-6 * 2 * 30)
    with pytest.raises(InputError, match="no attempt matches 'nothing'"):
        measure_forgery(trained, trained=SMALL, settings=settings, only="nothing")
    with pytest.raises(InputError, match="no victim"):
        measure_forgery(trained, trained=SMALL, settings=ForgerySettings(surrogates=2))


def test_forged_claims_against_other_methods(trained: Path) -> None:
    three = NullModels(**{**SMALL.__dict__, "count": 3})
    settings = MethodForgerySettings(
        surrogates=1, references=1, key_images=20, draws=30, queries=60, steps=15, eps=0.5
    )  # fmt: skip
    found = measure_method_forgery(trained, trained=three, settings=settings)
    rows = {row["rule"]: row for row in found.rows[:2]}
    assert found.victims == 1
    assert list(rows) == ["ROSE", "ROSE, part hashed"]
    assert rows["ROSE"]["granted"] == 0
    for first, second in (found.rows[2:4], found.rows[4:]):
        assert (first["rule"], second["rule"]) == ("CAE, claimant's references", "CAE, auditor's references")
        assert first["wsr_mean"] == second["wsr_mean"], "the same queries"
        assert second["smallest_p"] >= first["smallest_p"], "the auditor's models can only speak against the claim"
    assert rows["ROSE, part hashed"]["wsr_mean"] > rows["ROSE"]["wsr_mean"]
    json.dumps(found.rows)
    with pytest.raises(InputError, match="no victim"):
        measure_method_forgery(trained, trained=SMALL, settings=settings)
