"""``indelible doctor``: is this installation complete, and does it work?"""

import argparse
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

import indelible
from indelible.base.records import hardware, versions
from indelible.cli.data import data_states
from indelible.cli.options import emit
from indelible.verification.statistics.codebook_tests import answer_counts, codebook_p_value, codebook_scores

_DEVELOPMENT = {"dev", "docs"}


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    where = hardware("cuda" if torch.cuda.is_available() else "cpu")
    extras, sets = _extras(), data_states()
    tests = {} if arguments.no_test else _self_test()
    lines = ["Versions", *(f"  {name:16} {version}" for name, version in versions().items())]
    lines += ["Hardware", *(f"  {name:16} {value}" for name, value in where.items())]
    lines.append("Extras")
    for name, missing in extras.items():
        lack = f"missing {', '.join(missing)}; install with: pip install 'indelible[{name}]'"
        lines.append(f"  {name:16} {lack if missing else 'installed'}")
    lines.append("Data sets")
    for name, state in sets.items():
        lack = f"not here; get it with: indelible data fetch {name}"
        lines.append(f"  {name:16} {lack if state == 'no' else 'here'}")
    lines += ["Self-test"] if tests else []
    for name, found in tests.items():
        word = "OK" if found["ok"] else "FAILED"
        lines.append(f"  {name:34} {word} ({found['said']}, {found['seconds']:.1f} s)")
    document = {"versions": dict(versions()), "hardware": dict(where), "extras": extras, "data": sets, "tests": tests}
    return emit(arguments, document, "\n".join(lines), ok=all(found["ok"] for found in tests.values()))


def _extras() -> dict[str, list[str]]:
    """Return the packages of each extra that are not installed."""
    missing: dict[str, list[str]] = {}
    for requirement in metadata.requires("indelible") or []:
        needs, _, condition = requirement.partition(";")
        extra = condition.partition("extra == ")[2].strip(" '\"")
        # An extra may name another one, as in indelible[plots]: what that one lacks stands in its own line.
        package = next(iter(needs.replace("[", " ").replace(">", " ").replace("=", " ").split()))
        if not extra or extra in _DEVELOPMENT or package == "indelible":
            continue
        lacking = missing.setdefault(extra, [])
        try:
            metadata.version(package)
        except metadata.PackageNotFoundError:
            lacking.append(package)
    return dict(sorted(missing.items()))


def _self_test() -> dict[str, dict[str, Any]]:
    """Run every check; one that fails does not stop the others."""
    checks: dict[str, Callable[[], str]] = {
        "exact p-value of a known table": _known_p_value,
        "an APP step, weights restored": _step,
        "embed, save, load, verify": _round_trip,
    }
    found = {}
    for name, check in checks.items():
        began = time.monotonic()
        try:
            ok, said = True, check()
        except Exception as error:  # noqa: BLE001 - whatever goes wrong here is what the user asks about
            ok, said = False, f"{type(error).__name__}: {error}"
        found[name] = {"ok": ok, "said": said, "seconds": time.monotonic() - began}
    return found


def _expect(right: bool, wrong: str) -> None:
    if not right:
        raise RuntimeError(wrong)


def _known_p_value() -> str:
    """Compute the example that docs/verification.md works out by hand: one of nine vectors does as well."""
    answers = np.array([[1, 1, 1, 1], [2, 2, 2, 1]])
    value = codebook_p_value(codebook_scores(answer_counts(answers, np.array([0, 0, 0, 1]), 3)), np.array([1, 2]))
    _expect(value == 1 / 9, f"expected p = 1/9, got {value}")
    return "p = 1/9"


def _step() -> str:
    """Make one watermark pass: it must add a gradient and give the weights back to the bit."""
    key = indelible.Key.create(classes=4, shape=(3, 28, 28), secret=bytes(32))
    model = indelible.build_model("resnet-mini", classes=4, shape=(3, 28, 28), seed=0).train()
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    images = torch.rand(32, 3, 28, 28, generator=torch.Generator().manual_seed(0))
    loss = indelible.APP(model, key).backward(images)
    same = all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())
    _expect(same, "the weights were not restored")
    _expect(any(weight.grad is not None for weight in model.parameters()), "no gradient was added")
    return f"loss {float(loss):.2f}"


def _round_trip() -> str:
    """Train a small network for a few steps with a key, and ask it: every part of the package that an owner needs."""
    train, test = indelible.load("fashion-mini")
    some, few = train.subset(torch.arange(512)), test.subset(torch.arange(200))
    key = indelible.Key.create(classes=10, shape=train.shape, secret=bytes(32))
    model = indelible.build_model("resnet-mini", classes=10, shape=train.shape, seed=0)
    done = indelible.embed(model, some, key, scale="cpu", train={"epochs": 1}, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        kept = indelible.Key.load(key.save(Path(folder) / "key"))
    verdict = indelible.verify(done.model, kept, carriers=few, max_samples=16 * 10)
    _expect(kept.digest == key.digest, "the stored key differs from the one that was saved")
    _expect(0.0 < verdict.p_value <= 1.0, f"expected a p-value in (0, 1], got {verdict.p_value}")
    return f"{verdict.queries} queries; {done.record.images:,} image passes"
