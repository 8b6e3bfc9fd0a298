"""What every registered attack must do: any network, an ordinary model, isolation, resuming, an honest record."""

import ast
import copy
import json
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import indelible.attacks
from indelible.attacks import ATTACKS, Preprocessed
from indelible.attacks.removal_attack import attack
from indelible.base.errors import InputError
from indelible.base.files import tensor_digest
from indelible.data.images import ImageData
from indelible.keys.key import Key
from indelible.models import build_model
from indelible.nn.outputs import logits_of
from indelible.train.loop import Loop
from tests.attacks.networks import NETWORKS, make_network
from tests.attacks.settings import REFUSED, SETTINGS
from tests.conftest import stripes
from tests.values import attack_value

PROTOCOLS = ("sound", "paper")
REGISTERED = set(ATTACKS)  # before a test registers one of its own
ONE_STRENGTH = {"ft", "nad", "distill", "overwrite"}  # they have no curve; all others have one


def test_every_attack_has_a_row_of_settings() -> None:
    assert set(SETTINGS) == REGISTERED


def protocols_of(name: str) -> tuple[str, ...]:
    """Return the protocols of an attack: one that the paper did not run refuses ``paper``."""
    try:
        ATTACKS[name].build(protocol="paper")
    except InputError:
        return ("sound",)
    return PROTOCOLS


def test_the_papers_attacks_have_both_protocols() -> None:
    both = {"ft", "fp", "anp", "nad", "mcr", "nnl", "distill", "preprocess"}
    assert {name for name in REGISTERED if protocols_of(name) == PROTOCOLS} >= both


def shared(model: nn.Module) -> list[set[str]]:
    """Return the names of each parameter that has several."""
    names: dict[int, set[str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(weight), set()).add(name)
    return [group for group in names.values() if len(group) > 1]


def check_ordinary(model: nn.Module, stolen: nn.Module) -> None:
    """Check class, keys, shapes, gradients, numbers, and that no hook or parametrisation is left."""
    assert type(model) is type(stolen)
    before, after = stolen.state_dict(), model.state_dict()
    assert list(after) == list(before)
    assert shared(model) == shared(stolen)
    for name, value in after.items():
        assert value.shape == before[name].shape
        assert value.dtype == before[name].dtype
        assert not value.is_floating_point() or bool(value.isfinite().all()), name
    assert [weight.requires_grad for weight in model.parameters()] == [
        weight.requires_grad for weight in stolen.parameters()
    ]
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert not module._backward_hooks
        assert not parametrize.is_parametrized(module)
        assert "forward" not in vars(module)
    assert model.training == stolen.training
    model.load_state_dict(after)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", ATTACKS)
def test_any_network_comes_out_ordinary(
    name: str, protocol: str, network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stolen, data = make_network(network).eval(), stripes(24)
    if protocol not in ATTACKS[name].build.protocols:
        with pytest.raises(InputError, match=f"one protocol, 'sound', got '{protocol}'"):
            attack(stolen, data, attack_value(name, protocol=protocol, **SETTINGS[name]), device="cpu")
        return
    if (name, network) in REFUSED:
        with pytest.raises(InputError, match=REFUSED[name, network]):
            attack(stolen, data, attack_value(name, protocol=protocol, **SETTINGS[name]), device="cpu")
        return
    before = copy.deepcopy(stolen.state_dict())
    if protocol not in protocols_of(name):
        with pytest.raises(InputError, match="one protocol"):
            attack(stolen, data, attack_value(name, protocol=protocol), device="cpu")
        return
    readings = iter([10.0, 1e6 + 10.0])
    monkeypatch.setattr("indelible.attacks.removal_attack.time", SimpleNamespace(monotonic=lambda: next(readings)))
    attacked = attack(stolen, data, attack_value(name, protocol=protocol, **SETTINGS[name]), device="cpu")
    assert all(torch.equal(value, before[key]) for key, value in stolen.state_dict().items())
    check_ordinary(attacked.model, stolen)
    assert logits_of(attacked.model(torch.rand(3, 3, 32, 32))).shape == (3, 4)
    record = attacked.record
    json.dumps(record.to_json(), allow_nan=False)
    assert record.images >= 24, "each of the attacker's images at least once"
    # A million seconds of the clock below, but for what the loop's own clock counts twice or not at all.
    assert record.seconds == pytest.approx(1e6, abs=100)
    assert record.settings["method"]["protocol"] == protocol
    curve = attacked.curve
    assert (curve is None) == (name in ONE_STRENGTH)
    assert record.to_json()["metrics"].get("curve") == (curve and curve.to_json())
    if curve is None:
        return
    for value in (curve.values[0], curve.chosen, curve.values[-1]):
        built, again = (wrapped_in(curve.build(value), name) for _ in range(2))
        check_ordinary(built.train(stolen.training), stolen)
        assert tensor_digest(built.state_dict()) == tensor_digest(again.state_dict())


def wrapped_in(model: nn.Module, name: str) -> nn.Module:
    """Return the model behind what pre-processing puts before it; there, nothing else varies."""
    assert isinstance(model, Preprocessed) == (name == "preprocess")
    return model.suspect if isinstance(model, Preprocessed) else model


LARGE = ("resnet-18", "resnet-50", "vgg-16", "mobilenet-v2", "vit-tiny")
# The paper's attacks take all of its networks; for the others one with BatchNorm and one without is enough.
PAIRS = [
    (name, network)
    for name in ATTACKS
    for network in LARGE
    if name in {"ft", "fp", "anp", "nad", "mcr", "nnl"} or network in {"resnet-18", "vit-tiny"}
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "network"), PAIRS)
def test_the_papers_networks_for_a_few_steps(name: str, network: str) -> None:
    stolen = build_model(network, classes=4, shape=(3, 32, 32), seed=0).eval()
    settings: dict[str, Any] = {
        setting: 1 if setting == "epochs" else value for setting, value in SETTINGS[name].items()
    }
    if (name, network) in REFUSED:
        with pytest.raises(InputError, match=REFUSED[name, network]):
            attack(stolen, stripes(20), attack_value(name, **settings), device="cpu")
        return
    attacked = attack(stolen, stripes(20), attack_value(name, **settings), device="cpu")
    check_ordinary(attacked.model, stolen)


class Forbidden:
    """Raises whatever is asked of it."""

    def __init__(self, what: str) -> None:
        object.__setattr__(self, "what", what)

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"an attack reached for {object.__getattribute__(self, 'what')}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError(f"an attack used {object.__getattribute__(self, 'what')}")


class Temptation(nn.Module):
    """A stolen model that carries its owner's secrets as attributes: touching one raises."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 6, 3, stride=4), nn.BatchNorm2d(6), nn.ReLU())
        self.out = nn.Linear(6, 4)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.out(self.features(images).mean((2, 3)))
        return logits

    @property
    def key(self) -> Any:
        raise AssertionError("an attack reached for the key")

    wsr = test = samples = key


class TemptingData(ImageData):
    """The attacker's images, with the owner's and the test images in reach: touching them raises."""

    @property
    def test(self) -> Any:
        raise AssertionError("an attack reached for test data")

    key = wsr = owner = samples = test


OWN_KEY = {"overwrite": 1, "rehearse": 3}
"""Attacks that make so many keys of their own, from the run's seed, and mark images with these."""


def allow_own_key(monkeypatch: pytest.MonkeyPatch) -> list[Key]:
    """Let an attack use the keys that it creates and no other; return these."""
    create, samples, decoy, made = Key.create, Key.samples, Key.decoy, list[Key]()

    def creating(**settings: Any) -> Key:
        assert settings.get("secret") is not None, "a thief's key is a function of the run's seed"
        made.append(create(**settings))
        return made[-1]

    def sampling(self: Key, *args: Any, **settings: Any) -> Any:
        assert any(self is key for key in made), "an attack marked images with a key that it did not make"
        return samples(self, *args, **settings)

    def another(self: Key, number: int) -> Key:
        assert any(self is key for key in made), "an attack made another key of one that it did not make"
        return decoy(self, number)

    monkeypatch.setattr(Key, "decoy", another)
    monkeypatch.setattr(Key, "create", creating)
    monkeypatch.setattr(Key, "samples", sampling)
    return made


@pytest.mark.parametrize("name", ATTACKS)
def test_isolation(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With key, WSR, verdict, runs and named data sets all replaced by what raises, ``sound`` still completes."""
    own = allow_own_key(monkeypatch) if name in OWN_KEY else []
    for method in ("create", "load", "samples", "mark", "choose", "decoy", "public", "digest"):
        if name not in OWN_KEY or method not in {"create", "samples", "mark", "decoy"}:
            monkeypatch.setattr(Key, method, Forbidden(f"Key.{method}"))
    for module, function in (
        ("indelible.train.evaluate", "success_rate"), ("indelible.verification.verdict", "verify"),
        ("indelible.embedding.embedding_method", "embed"), ("indelible.data.catalog", "load"),
        ("indelible.train.run_folder", "Run"),
    ):  # fmt: skip
        monkeypatch.setattr(sys.modules[module], function, Forbidden(f"{module}.{function}"))
    plain = stripes(40)
    data = TemptingData(plain.images, plain.labels, plain.classes, plain.name)
    attacked = attack(Temptation(), data, attack_value(name, **SETTINGS[name]), device="cpu")
    assert attacked.record.inputs["images"] == 40
    assert not {"key", "wsr", "ba"} & set(attacked.record.metrics)
    assert not any({"wsr", "ba"} & set(row) for row in attacked.history)
    assert len(own) == OWN_KEY.get(name, 0)


OWN_KEY_IMPORTS = {
    (attack, f"indelible.{place}")
    for attack, mixes in {"overwrite": "mix", "rehearse": "StampedObjective"}.items()
    for place in ("keys.key", "keys.key.Key", "embedding.mixing", f"embedding.mixing.{mixes}")
}


def test_attacks_import_nothing_of_the_owner() -> None:
    paths = list(Path(indelible.attacks.__file__).parent.glob("*.py"))
    assert {path.stem for path in paths} >= {"removal_attack", *OWN_KEY, *(name.replace("-", "_") for name in ATTACKS)}
    of_owner = set[tuple[str, str]]()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            for name in [*names, module, *(f"{module}.{name}" for name in names)]:
                if name.startswith(("indelible.keys", "indelible.embed", "indelible.verif")):
                    of_owner.add((path.stem, name))
                assert "hit_rate" not in name, path
                assert "success_rate" not in name, path
                assert not name.startswith(("indelible.data.catalog", "indelible.train.run_folder")), path
    assert of_owner == OWN_KEY_IMPORTS


@pytest.mark.parametrize("name", ATTACKS)
def test_an_interrupted_attack_resumes_to_the_same_bits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stolen, data = make_network("batch-norm"), stripes(40)
    whole = attack(stolen, data, attack_value(name, **SETTINGS[name]), device="cpu")
    steps, advance = 0, Loop.advance

    def interrupted(self: Any, *args: Any) -> None:
        nonlocal steps
        advance(self, *args)
        steps += 1
        if steps in {2, 5}:  # Ctrl-C in the first phase and later
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Loop, "advance", interrupted)
    for _ in range(4):
        try:
            resumed = attack(stolen, data, attack_value(name, **SETTINGS[name]), device="cpu", folder=tmp_path)
            break
        except KeyboardInterrupt:
            continue
    assert tensor_digest(resumed.model.state_dict()) == tensor_digest(whole.model.state_dict())
    assert resumed.record.images == whole.record.images
    assert resumed.record.metrics == whole.record.metrics


@pytest.mark.parametrize("name", ATTACKS)
def test_a_normalised_model_is_given_normalised_images(name: str) -> None:
    """The attack of a model with its own normalisation inside equals that of one that is told to normalise."""
    normalize = ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
    stolen, data, seen = make_network("batch-norm"), stripes(40), []
    handle = stolen.register_forward_pre_hook(lambda _, args: seen.append(args[0].amin().item()))
    attack(stolen, data, attack_value(name, **SETTINGS[name]), device="cpu", normalize=normalize)
    handle.remove()
    assert seen
    assert max(seen) < 0  # every batch, also those that only trace shapes: dark pixels lie below the mean
