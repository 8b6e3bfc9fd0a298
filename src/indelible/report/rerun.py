"""How a run was made, and the lines that make it again."""

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from indelible.report.names import is_marked, own_settings
from indelible.train.run import Run

__all__ = ["again", "flattened"]

_EMBED = """\
import indelible

run = indelible.Run.load({folder})
owner, _, test = run.images()
model = run.architecture.build(seed={seed}){trained}
again = indelible.embed(
    model, owner, run.key(), {method}, start=run.record.settings.get("start", "scratch"),
    train=indelible.TrainSettings.from_json(run.record.settings["train"]),
    seed={seed}, test=test, device=run.record.settings["device"], **run.record.settings["method"],
)
print("same bits:", again.record.metrics["model_digest"] == run.record.metrics["model_digest"])
"""
_TRAIN = """\
import indelible
from indelible.train.unmarked import train_unmarked

run = indelible.Run.load({folder})
owner, _, test = run.images()
again = train_unmarked(
    run.architecture.build(seed={seed}), owner,
    indelible.TrainSettings.from_json(run.record.settings["train"]),
    seed={seed}, test=test, device=run.record.settings["device"],
)
print("same bits:", again.record.metrics["model_digest"] == run.record.metrics["model_digest"])
"""


def again(run: Run) -> str:
    """Return what to type to make the run again: Python for a training, a command for an attack."""
    record, folder = run.record, run.folder.as_posix()
    if record.verb == "attack" and run.parent is not None:
        settings = dict(own_settings(record))
        recipe = settings.pop("recipe", None)
        words = ["indelible", "attack", run.parent.as_posix(), "--method", record.method]
        words += ["--recipe", str(recipe)] if recipe else []
        for name, value in settings.items():
            words += ["--set", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
        return shlex.join([*words, "--seed", str(record.seed), "--out", f"{folder}-again"])
    if "train" not in record.settings or record.verb == "attack":
        return ""
    text = _EMBED if is_marked(record) else _TRAIN
    # A run that protected a trained model started from weights that it does not keep.
    trained = "  # load the trained weights into it" if record.settings.get("start") == "trained" else ""
    return text.format(folder=repr(folder), seed=record.seed, method=repr(record.method), trained=trained)


def flattened(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested settings as (dotted name, value) pairs."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
