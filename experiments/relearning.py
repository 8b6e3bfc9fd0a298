"""Does relearning bring a removed watermark back, and only there? Ask attacked models, and ask with foreign keys.

For each run: the p-value of the owner's key by the test ``codebook``, which asks for answers, and by ``relearning``,
which teaches copies of the suspect some marks and asks for the others. Foreign keys, which the model never saw, are
asked in the same way: their p-values must look like those of chance.

Run it: python experiments/relearning.py runs/app-rehearse runs/app-fst --foreign 2

Rows are added to results/relearning.json; a run that is there already is not asked again. The table is in
docs/threat-model.md. Two minutes a run and a minute for each foreign key on one core.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import indelible


def measure(folder: Path, foreign: int) -> dict[str, Any]:
    """Ask one run's model with its own key and with so many foreign ones."""
    run = indelible.Run.load(folder)
    key, model, (_, _, test) = run.key(), run.model(), run.images()

    def ask(asked: indelible.Key, procedure: str) -> indelible.Verdict:
        accuracy = procedure == "codebook"
        return indelible.verify(model, asked, test, procedure=procedure, normalize=run.normalize(), accuracy=accuracy)

    plain, taught = ask(key, "codebook"), ask(key, "relearning")
    others = []
    for number in range(foreign):
        secret = hashlib.sha256(f"{run.record.seed}, foreign key {number}".encode()).digest()
        others.append(ask(replace(key, secret=secret), "relearning").p_value)
    return {
        "data": run.data, "verb": run.record.verb, "method": run.record.method, "seed": run.record.seed,
        "digest": run.record.metrics["model_digest"], "ba": plain.ba, "wsr": plain.wsr,
        "p_value": plain.p_value, "owned": plain.owned,
        "wsr_relearnt": taught.wsr, "marks_relearnt": taught.counts["held"], "marks_asked": taught.counts["marks"],
        "p_value_relearnt": taught.p_value, "owned_relearnt": taught.owned, "p_values_foreign": others,
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is not in the file yet."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("runs", type=Path, nargs="+")
    options.add_argument("--foreign", type=int, default=0, metavar="N", help="foreign keys to ask each model with")
    options.add_argument("--out", type=Path, default=Path("results/relearning.json"))
    given = options.parse_args(argv)
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = json.loads(given.out.read_text()) if given.out.exists() else []
    for folder in given.runs:
        if any(row["digest"] == indelible.Run.load(folder).record.metrics["model_digest"] for row in rows):
            continue
        row = measure(folder, given.foreign)
        rows.append(row)
        given.out.write_text(json.dumps(rows, indent=1) + "\n")
        print(
            f"{row['verb']} {row['method']} seed {row['seed']}: p = {row['p_value']:.1g}, "
            f"relearnt p = {row['p_value_relearnt']:.1g} ({row['marks_relearnt']} of {row['marks_asked']} marks), "
            f"foreign keys {', '.join(f'{value:.1g}' for value in row['p_values_foreign']) or '-'}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
