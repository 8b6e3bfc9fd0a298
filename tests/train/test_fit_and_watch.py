"""The loop: golden curve, same bits again, same bits after SIGKILL at random steps, clear refusals."""

import copy
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from indelible.base.errors import DamagedFileError, InputError, StorageError, UnknownNameError
from indelible.data.images import ImageData
from indelible.train import CrossEntropy, Schedule, TrainSettings, fit
from indelible.train.evaluate import accuracy
from indelible.train.history import TIME_FIELDS, read_history
from indelible.train.loop import CHECKPOINT
from indelible.train.objective import Step
from indelible_companions.certificate import hit_rate
from tests.conftest import TinyNet, stripes
from tests.waiting import PATIENCE

QUICK = TrainSettings(epochs=2, batch_size=64, lr=0.1, schedule=Schedule.one_cycle(), evaluate_every=1)


def weights(net: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in net.state_dict().items()}


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return list(first) == list(second) and all(torch.equal(first[name], second[name]) for name in first)


def untimed(rows: Any) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in TIME_FIELDS} for row in rows]


def test_it_learns_and_the_same_seed_gives_the_same_bits(net: TinyNet, data: ImageData) -> None:
    test = stripes(80, seed=9)
    twin, other = copy.deepcopy(net), copy.deepcopy(net)
    fitted = fit(net, data, QUICK.but(epochs=6), seed=1, device="cpu", evaluate=lambda m: {"ba": accuracy(m, test)})
    again = fit(twin, data, QUICK.but(epochs=6), seed=1, device="cpu", evaluate=lambda m: {"ba": accuracy(m, test)})
    fit(other, data, QUICK.but(epochs=6), seed=2, device="cpu")
    assert fitted.history[-1]["ba"] > 0.9
    assert same(weights(net), weights(twin))
    assert not same(weights(net), weights(other))
    assert untimed(fitted.history) == untimed(again.history)
    assert fitted.steps == 30
    assert fitted.images == 6 * 320


def test_evaluation_does_not_change_the_run(net: TinyNet, data: ImageData) -> None:
    twin = copy.deepcopy(net)
    fit(net, data, QUICK, seed=1, device="cpu", evaluate=lambda m: {"ba": accuracy(m, data)})
    fit(twin, data, QUICK, seed=1, device="cpu")
    assert same(weights(net), weights(twin))


def test_sgd_step_equals_torch_by_hand(net: TinyNet, data: ImageData) -> None:
    """Two steps without augmentation, against torch's optimiser driven by hand on the same rows."""
    from indelible.data.batches import Batches

    settings = TrainSettings(
        epochs=1, max_steps=2, batch_size=32, lr=0.05, weight_decay=0.01, augmentation="none", channels_last=False,
        schedule=Schedule(), clip=0.5,
    )  # fmt: skip
    twin = copy.deepcopy(net)
    fit(net, data, settings, seed=4, device="cpu")
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    batches = Batches(data=data, batch_size=32, seed=4, augmentation="none")
    twin.train()
    for _, (images, labels) in zip(range(2), batches.epoch(0), strict=False):
        optimizer.zero_grad()
        nn.functional.cross_entropy(twin(images), labels).backward()
        nn.utils.clip_grad_norm_(twin.parameters(), 0.5)
        optimizer.step()
    for name, value in twin.state_dict().items():
        torch.testing.assert_close(net.state_dict()[name], value, rtol=1e-6, atol=1e-7)


def test_golden_curve(net: TinyNet, data: ImageData) -> None:
    """A few deterministic steps in double precision; a change of any ingredient shows here."""
    fitted = fit(net.double(), data, QUICK.but(precision="64-true", channels_last=False), seed=0, device="cpu")
    assert [round(row["loss"], 6) for row in fitted.history] == GOLDEN


GOLDEN = [1.295477, 0.896819]


class Interrupting(CrossEntropy):
    """An objective that is interrupted in the middle of a step."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def backward(self, step: Step) -> Tensor:
        loss = super().backward(step)
        if step.number == self.at:
            signal.raise_signal(signal.SIGINT)
        return loss


@pytest.mark.parametrize("at", [0, 3, 4, 7])
def test_ctrl_c_finishes_the_step_and_resumes_to_the_same_bits(
    net: TinyNet, data: ImageData, tmp_path: Path, at: int
) -> None:
    handler = signal.getsignal(signal.SIGINT)
    straight = copy.deepcopy(net)
    torn, going_on = copy.deepcopy(net), copy.deepcopy(net)
    whole = fit(straight, data, QUICK, seed=1, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        fit(torn, data, QUICK, seed=1, device="cpu", folder=tmp_path, objective=Interrupting(at))
    assert (tmp_path / CHECKPOINT).exists()
    rest = fit(going_on, data, QUICK, seed=1, device="cpu", folder=tmp_path)
    assert same(weights(going_on), weights(straight))
    assert untimed(rest.history) == untimed(whole.history)
    assert untimed(read_history(tmp_path)) == untimed(whole.history)
    assert rest.images == whole.images
    assert signal.getsignal(signal.SIGINT) is handler


def test_training_in_a_thread_works(net: TinyNet, data: ImageData) -> None:
    done: list[int] = []
    worker = threading.Thread(
        target=lambda: done.append(fit(net, data, QUICK.but(max_steps=1), seed=0, device="cpu").steps)
    )
    worker.start()
    worker.join()
    assert done == [1]


RUN = """
import sys, torch
from pathlib import Path
torch.set_num_threads(1)
from tests.conftest import TinyNet, stripes
from indelible.base.files import write_tensors
from indelible.embedding import AdversarialPerturbation
from indelible.keys.key import Key
import indelible
torch.manual_seed(3)
net = torch.nn.Sequential(TinyNet(), torch.nn.Dropout(0.1))
key = Key.create(kind="content", classes=4, shape=(3, 32, 32), target=0, secret=bytes(range(32)))
method = AdversarialPerturbation.for_key(key, "paper", rows=8, clean_rows=8)
embedded = indelible.embed(net, stripes(320), key, method, scale="paper", folder=sys.argv[1], test=stripes(40, seed=1),
    device="cpu",
    train={"epochs": 5, "batch_size": 32, "lr": 0.1, "checkpoint_seconds": 0.0, "evaluate_every": 1})
write_tensors(Path(sys.argv[1]) / "final.safetensors", embedded.model.state_dict())
"""


def start(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", RUN, str(folder)], stderr=subprocess.DEVNULL)


def written(path: Path) -> int:
    """Return when a file was written last; 0 for none."""
    return path.stat().st_mtime_ns if path.exists() else 0


@pytest.mark.slow
def test_sigkill_at_random_moments_resumes_to_the_same_bits(tmp_path: Path) -> None:
    """APP with dropout and a checkpoint at every step, killed again and again, ends as the uninterrupted run does."""
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    assert start(straight).wait(PATIENCE) == 0
    chance = random.Random(7)
    kills = 0
    for _ in range(40):
        wanted = chance.randint(3, 10)
        process = start(killed)
        seen = {written(killed / CHECKPOINT)}
        # Let it get past loading and do some of its fifty steps, then kill without warning.
        while kills < 2 and process.poll() is None and len(seen) < wanted:
            seen.add(written(killed / CHECKPOINT))
            time.sleep(0.002)
        if kills < 2 and process.poll() is None:
            process.kill()
            kills += 1
        if process.wait(PATIENCE) == 0:
            if kills == 2:
                break
            # It was over before it could be killed twice, since this process had to wait for a core: start over.
            shutil.rmtree(killed)
            kills = 0
    assert kills == 2
    assert (straight / "final.safetensors").read_bytes() == (killed / "final.safetensors").read_bytes()
    assert untimed(read_history(straight)) == untimed(read_history(killed))


class TestRefusals:
    def test_another_runs_checkpoint(self, net: TinyNet, data: ImageData, tmp_path: Path) -> None:
        with pytest.raises(KeyboardInterrupt):
            fit(copy.deepcopy(net), data, QUICK, seed=1, device="cpu", folder=tmp_path, objective=Interrupting(2))
        with pytest.raises(InputError, match="other settings"):
            fit(net, data, QUICK.but(lr=0.2), seed=1, device="cpu", folder=tmp_path)
        with pytest.raises(InputError, match="other settings"):
            fit(net, data, QUICK, seed=2, device="cpu", folder=tmp_path)

    @pytest.mark.parametrize("how", ["truncated", "flipped header", "empty", "text"])
    def test_a_damaged_checkpoint(self, net: TinyNet, data: ImageData, tmp_path: Path, how: str) -> None:
        with pytest.raises(KeyboardInterrupt):
            fit(copy.deepcopy(net), data, QUICK, seed=1, device="cpu", folder=tmp_path, objective=Interrupting(2))
        path = tmp_path / CHECKPOINT
        content = path.read_bytes()
        damaged = {
            "truncated": content[: len(content) // 2],
            "flipped header": b"\xff" * 8 + content[8:],
            "empty": b"",
            "text": b"not a checkpoint",
        }[how]
        path.write_bytes(damaged)
        with pytest.raises(DamagedFileError, match="checkpoint"):
            fit(net, data, QUICK, seed=1, device="cpu", folder=tmp_path)
        assert path.read_bytes() == damaged

    def test_a_full_disk_while_saving_keeps_the_old_checkpoint(
        self, net: TinyNet, data: ImageData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import errno
        import os

        with pytest.raises(KeyboardInterrupt):
            fit(copy.deepcopy(net), data, QUICK, seed=1, device="cpu", folder=tmp_path, objective=Interrupting(2))
        before = (tmp_path / CHECKPOINT).read_bytes()

        def full(handle: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(StorageError, match="disk is full"):
                fit(copy.deepcopy(net), data, QUICK.but(checkpoint_seconds=0), seed=1, device="cpu", folder=tmp_path)
        assert (tmp_path / CHECKPOINT).read_bytes() == before
        assert not list(tmp_path.glob(".*.part"))
        fit(net, data, QUICK, seed=1, device="cpu", folder=tmp_path)

    def test_nan(self, net: TinyNet, data: ImageData) -> None:
        with pytest.raises(InputError, match=r"NaN in epoch 1\. Lower the learning rate"):
            fit(net, data, QUICK.but(lr=1e20, schedule=Schedule()), seed=1, device="cpu")

        class Infinite(CrossEntropy):
            def backward(self, step: Step) -> Tensor:
                return step.images.new_full((), float("inf"))

        with pytest.raises(InputError, match=r"infinite in epoch 1\. Lower the learning rate"):
            fit(TinyNet(), data, QUICK, seed=1, device="cpu", objective=Infinite())
        fresh = TinyNet()
        with torch.no_grad():
            fresh.head.bias[0] = float("inf")
        with pytest.raises(InputError, match=r"head\.bias"):
            fit(fresh, data, QUICK, seed=1, device="cpu")

    def test_nothing_to_train(self, net: TinyNet, data: ImageData) -> None:
        with pytest.raises(InputError, match="no trainable"):
            fit(net.requires_grad_(False), data, QUICK, seed=1, device="cpu")

    def test_devices_and_settings(self, net: TinyNet, data: ImageData) -> None:
        with pytest.raises(InputError, match="unknown device 'tpu'"):
            fit(net, data, QUICK, seed=1, device="tpu")
        with pytest.raises(UnknownNameError, match="learning_rate"):
            QUICK.but(learning_rate=1)
        least = {"epochs": "at least 1", "lr": "greater than 0", "batch_size": "at least 1", "max_steps": "at least 1"}
        for name, said in least.items():
            with pytest.raises(InputError, match=f"{name} must be {said}, got 0"):
                QUICK.but(**{name: 0})
        for name, value in (("optimizer", "lion"), ("precision", "int4"), ("augmentation", "cutmix")):
            with pytest.raises(UnknownNameError, match=f"unknown {name} '{value}': choose one of "):
                QUICK.but(**{name: value})


def test_settings_survive_json() -> None:
    import json

    settings = TrainSettings(schedule=Schedule.every(5), normalize=((0.1, 0.2), (1.0, 2.0)), clip=1.0)
    assert TrainSettings.from_json(json.loads(json.dumps(settings.to_json()))) == settings


class TestSchedule:
    def test_the_papers(self) -> None:
        embed, tune = Schedule.milestones(50, 75), Schedule.every(5, 0.5)
        assert [embed.factor(epoch, 100) for epoch in (0, 49.9, 50, 74, 75)] == pytest.approx([1, 1, 0.1, 0.1, 0.01])
        assert [tune.factor(epoch, 30) for epoch in (0, 4.9, 5, 29)] == pytest.approx([1, 1, 0.5, 0.5**5])

    def test_one_cycle_and_cosine_by_hand(self) -> None:
        cycle = Schedule.one_cycle(0.2)
        assert [cycle.factor(epoch, 10) for epoch in (0, 1, 2, 6, 10)] == pytest.approx([0, 0.5, 1, 0.5, 0])
        late = Schedule(kind="late-fall")
        assert [round(late.factor(epoch, 100), 9) for epoch in (0, 50, 70, 90, 100)] == [1.0, 1.0, 0.505, 0.01, 0.01]
        wave = Schedule(kind="cosine", warmup=0.0)
        assert [wave.factor(epoch, 10) for epoch in (0, 5, 10)] == pytest.approx([1, 0.5, 0])

    def test_refusals(self) -> None:
        with pytest.raises(UnknownNameError, match=r"unknown schedule 'linear': choose one of .*one-cycle"):
            Schedule(kind="linear")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="interval"):
            Schedule(kind="every")
        with pytest.raises(InputError, match="warmup"):
            Schedule(warmup=1.0)


def test_the_mode_of_every_layer_is_restored(net: TinyNet, data: ImageData) -> None:
    net.train()
    net.features[1].eval()
    accuracy(net, data)
    assert net.training
    assert not net.features[1].training
    with pytest.raises(InputError, match="no watermark samples"):
        hit_rate(net, data.images[:0], data.labels[:0])


def test_normalisation_is_applied_in_training_and_evaluation(net: TinyNet, data: ImageData) -> None:
    """A net trained with normalize equals one that normalises in its first layer."""
    normal = ((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))

    class Own(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, images: Tensor) -> Tensor:
            mean, std = (torch.tensor(values)[:, None, None] for values in normal)
            logits: Tensor = self.inner((images - mean) / std)
            return logits

    twin = copy.deepcopy(net)
    fit(net, data, QUICK.but(normalize=normal), seed=1, device="cpu")
    fit(Own(twin), data, QUICK, seed=1, device="cpu")
    assert accuracy(net, data, normalize=normal) == accuracy(Own(twin), data)
    for name, value in twin.state_dict().items():
        torch.testing.assert_close(net.state_dict()[name], value, rtol=1e-4, atol=1e-5)


def test_finished_phases_are_not_done_again(net: TinyNet, data: ImageData, tmp_path: Path) -> None:
    """A run of two phases, broken off in the second: the first comes back from disk, with its rows and its bits."""
    straight, going_on = copy.deepcopy(net), copy.deepcopy(net)

    def both(model: nn.Module, folder: Path, objective: CrossEntropy | None = None) -> list[Any]:
        first = fit(model, data, QUICK, seed=1, device="cpu", folder=folder, phase="first")
        second = fit(
            model, data, QUICK.but(lr=0.01), seed=1, device="cpu", folder=folder, phase="second", objective=objective,
            earlier=first.history,
        )  # fmt: skip
        return [*first.history, *second.history]

    whole = both(straight, tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        both(net, tmp_path / "torn", Interrupting(6))
    stamp = (tmp_path / "torn" / "phase-first.safetensors").stat().st_mtime_ns
    rows = both(going_on, tmp_path / "torn")
    assert (tmp_path / "torn" / "phase-first.safetensors").stat().st_mtime_ns == stamp
    assert same(weights(going_on), weights(straight))
    assert untimed(rows) == untimed(whole)
    assert untimed(read_history(tmp_path / "torn")) == untimed(whole)
    assert [row["phase"] for row in whole] == ["first", "first", "second", "second"]
    with pytest.raises(InputError, match="other settings"):
        fit(net, data, QUICK.but(lr=0.3), seed=1, device="cpu", folder=tmp_path / "torn", phase="first")
