"""What two gloo processes do in the tests: every case once, in one pair of processes, results in a folder."""

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import indelible
from indelible.attacks import ATTACKS as ALL_ATTACKS
from indelible.base.errors import InputError
from indelible.base.files import write_json, write_tensors
from indelible.data.augment import Share
from indelible.embedding import AdversarialPerturbation, CertifiedTraining, ExponentialWeights
from indelible.keys.key import Key
from indelible.nn.collectives import processes
from indelible.train import CrossEntropy, TrainSettings
from indelible.train.objective import Step
from indelible.train.processes import agree, current, from_first, joined
from tests.conftest import SECRET, SHAPE, TinyNet, stripes
from tests.values import attack_value

DATA = stripes(35)  # batches of 16, 16 and 3 rows: the last is too small for two processes and done whole by each
UNEVEN = stripes(37)  # 16, 16 and 5: one process has 3 rows, the other 2
SETTINGS = TrainSettings(epochs=2, batch_size=16, lr=0.05, precision="64-true", evaluate_every=1)
APP = AdversarialPerturbation(rows=7, clean_rows=9, alpha=0.5, eps=0.1, fraction=0.1)
CW = CertifiedTraining(levels=3, draws=2, rows=4, start_epoch=0, fraction=0.2)


def key() -> Key:
    return Key.create(kind="content", classes=4, shape=SHAPE, target=0, secret=SECRET)


def plain_net(drop: float = 0.0) -> nn.Module:
    """A net without BatchNorm."""
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Conv2d(3, 4, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Dropout(drop), nn.Linear(196, 4)
    ).double()


def bn_net() -> nn.Module:
    torch.manual_seed(5)
    return TinyNet(width=2).double()


CASES: dict[str, Callable[[], tuple[nn.Module, Any]]] = {
    "plain": lambda: (plain_net(), {"data": DATA}),
    "uneven": lambda: (plain_net(), {"data": UNEVEN}),
    "global norm, every 2": lambda: (plain_net(), {"data": DATA, "method": replace(APP, norm="global", every=2)}),
    "vanilla": lambda: (plain_net(), {"data": UNEVEN, "method": "vanilla"}),
    "EW": lambda: (plain_net(), {"data": UNEVEN, "method": ExponentialWeights(epochs=1, fraction=0.2)}),
    "CW": lambda: (plain_net(), {"data": DATA, "method": CW}),
    "per process": lambda: (bn_net(), {"data": DATA}),
    "dropout": lambda: (plain_net(0.3), {"data": DATA}),
}
SAME_AS_ONE = [name for name in CASES if name not in {"per process", "dropout"}]


# Broken off after three steps of six by one number of processes, and continued by another.
RESUMED: dict[str, tuple[Callable[[], nn.Module], TrainSettings]] = {
    "plain": (plain_net, SETTINGS),
}


def resumable(name: str, folder: Path | None, *, stop: bool = False) -> indelible.Embedded | None:
    """Embed by APP in ``folder``, in as many processes as there are; None if the run was stopped in its third step."""
    make, settings = RESUMED[name]
    net = make()
    ordinary = CrossEntropy.backward

    def stopping(self: CrossEntropy, step: Step) -> Tensor:
        loss = ordinary(self, step)
        if stop and step.number == 2 and current().rank == current().world - 1:
            signal.raise_signal(signal.SIGINT)  # in one process only, in the middle of a step
        return loss

    with patch.object(CrossEntropy, "backward", stopping):
        try:
            return indelible.embed(
                net, DATA, key(), APP, scale="paper", train=settings, device="cpu", seed=3, folder=folder
            )
        except KeyboardInterrupt:
            return None


def run_case(name: str, net: nn.Module | None = None, folder: Path | None = None) -> indelible.Embedded:
    model, arguments = CASES[name]()
    return indelible.embed(
        net or model,
        folder=folder,
        scale="paper",
        key=key(),
        device="cpu",
        seed=3,
        test=stripes(20, seed=1),
        **{"train": SETTINGS, "method": APP, **arguments},
    )


ATTACKS: dict[str, dict[str, Any]] = {
    "ft": {"epochs": 1, "batch_size": 16},
    "nad": {"teacher_epochs": 1, "epochs": 1, "batch_size": 16, "beta": 1500.0},
    "distill": {"epochs": 1, "batch_size": 16},
    "overwrite": {"epochs": 1, "batch_size": 16},
}
STUDENT = "tests.train.group:student"


def run_attack(name: str, **more: Any) -> indelible.Attacked:
    """Attack a net without BatchNorm, in float32: what one process does, two can do."""
    value = attack_value(name, **{**ATTACKS[name], **more})
    return indelible.attack(plain_net().float(), UNEVEN, value, device="cpu", seed=3)


def student() -> nn.Module:
    """Another network than that which is distilled."""
    return nn.Sequential(nn.Conv2d(3, 5, 8, stride=8), nn.ReLU(), nn.Flatten(), nn.Linear(80, 4))


class Refused(nn.Module):
    """Made for another number of classes."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3 * 32 * 32, 7)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(images.flatten(1))
        return logits


def in_a_folder(folder: Path, rank: int) -> dict[str, Any]:
    """Embed with a folder, as a user does; return what each process sees of it."""
    net = bn_net()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    done = run_case("per process", net, folder / "kept")
    write_tensors(folder / f"in a folder-{rank}.safetensors", done.model.state_dict())
    assert done.samples is not None
    with torch.no_grad():
        answers = done.model.eval()(done.samples.images.double() / 255).argmax(1)
    return {
        "same class": type(done.model) is type(net),
        "same as before": all(torch.equal(value, before[name]) for name, value in net.state_dict().items()),
        "devices": done.record.settings["devices"],
        "hits": float((answers == done.samples.labels).double().mean()),
        "wsr_embedded": done.record.metrics["wsr_embedded"],
        "history": (folder / "kept" / "history.jsonl").exists(),
    }


def own_loop(model: nn.Module, share: Share) -> None:
    """Somebody's own loop with DistributedDataParallel, three steps on fixed batches of 10."""
    wrapped: nn.Module = DistributedDataParallel(model) if share.world > 1 else model
    mark = indelible.APP(wrapped, key(), DATA, seed=1, method=APP)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(3):
        images, labels = (share.of(rows[step * 10 :][:10]) for rows in (DATA.images.double() / 255, DATA.labels))
        optimizer.zero_grad()
        F.cross_entropy(wrapped(images), labels).backward()
        mark.backward(images)
        optimizer.step()


def count_reductions(method: str) -> int:
    """Return how many collectives of any kind a step costs: what ten steps need more than five, divided by five."""
    counts: list[int] = []
    for steps in (5, 10):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
            settings = SETTINGS.but(epochs=1, max_steps=steps, batch_size=8, evaluate_every=100)
            value = APP if method == "app" else method
            indelible.embed(bn_net(), stripes(88), key(), value, scale="paper", train=settings, device="cpu")
        counts.append(sum(event.name.startswith("c10d::") for event in seen.events()))
    more = counts[1] - counts[0]
    assert more % 5 == 0, counts
    return more // 5


def work(folder: Path) -> None:
    """Do everything; called in each of two processes."""
    with joined(device="cpu") as group:
        rank = group.rank
        assert (processes(), group.world, group.devices, group.nodes) == (2, 2, 2, 1)
        said: dict[str, Any] = {}
        for name in CASES:
            done = run_case(name)
            write_tensors(folder / f"{name}-{rank}.safetensors", done.model.state_dict())
            said[name] = {"history": list(done.history), "record": done.record.to_json()}
        for name in ATTACKS:
            write_tensors(folder / f"{name}-{rank}.safetensors", run_attack(name).model.state_dict())
        other = run_attack("distill", architecture=STUDENT)
        write_tensors(folder / f"student-{rank}.safetensors", other.model.state_dict())
        said["student"] = other.architecture
        said["in a folder"] = in_a_folder(folder, rank)
        said["alone"] = {}
        for name in sorted(set(ALL_ATTACKS) - set(ATTACKS)):
            try:
                indelible.attack(bn_net().float(), DATA, name, device="cpu")
            except InputError as error:
                said["alone"][name] = str(error)
        try:
            indelible.attack(Refused(), DATA, device="cpu")
        except InputError as error:
            said["unfit"] = str(error)
        loop = plain_net()
        own_loop(loop, Share(rank, 2))
        write_tensors(folder / f"own loop-{rank}.safetensors", loop.state_dict())
        said["reductions"] = {method: count_reductions(method) for method in ("vanilla", "app")}
        said["first"] = from_first(lambda: {"rank": rank})
        said["agree"] = [agree(7), agree(rank)]
        try:
            from_first(_refuse)
        except InputError as error:
            said["refused"] = str(error)
        said["stopped"], said["rows"] = {}, {}
        for name in RESUMED:
            said["stopped"][name] = resumable(name, folder / f"stopped by two, {name}", stop=True) is None
            rest = resumable(name, folder / f"stopped by one, {name}")
            assert rest is not None
            write_tensors(folder / f"continued by two, {name}-{rank}.safetensors", rest.model.state_dict())
            said["rows"][name] = list(rest.history)
        write_json(folder / f"said-{rank}.json", said)
        distributed.barrier()


def _refuse() -> None:
    raise InputError("the first process says no.")
