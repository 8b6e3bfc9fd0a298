"""Would class scores prove more than labels? Ask the model of a run for both, and compare the p-values.

The test of the package counts labels. Whoever holds the weights also sees a score for every class. For each carrier and
class, rank the K marks by the score that the suspect gives to the class:

    S_i(c) = sum over carriers of (marks with a lower score than mark i) - (marks with a higher one)

The sum over all marks is 0, so that what a model answers anyway gains nothing, and the p-value is exact as before: it
is the share of all vectors of classes with a sum of scores at least as large.

Run it: python experiments/class_scores.py runs/app runs/app-rehearse --carriers 200

Rows are added to results/class-scores.json. The comparison is in docs/verification.md.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import indelible
from indelible.data.augment import normalise, to_float
from indelible.nn.outputs import logits_of
from indelible.train.evaluate import evaluating
from indelible.verification.statistics.codebook import codebook_p_value


def rank_scores(given: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return S_i(c), int64 (K, C), for the scores of every mark, carrier and class (K, n, C)."""
    return np.stack([(np.sign(own - given).sum(0)).sum(0) for own in given]).astype(np.int64)


def compare(folder: Path, carriers: int) -> dict[str, Any]:
    """Ask one run's model each mark on so many test images."""
    run = indelible.Run.load(folder)
    key, model, (_, _, test) = run.key(), run.model(), run.images()
    book = key.codebook()
    samples = key.samples(test, purpose="verify", count=carriers * len(book))
    with evaluating(model):
        parts = [
            logits_of(model(normalise(to_float(part), run.normalize()))).double().log_softmax(1)
            for part in torch.split(samples.images, 500)
        ]
    given = torch.cat(parts).reshape(len(book), carriers, -1).numpy()
    verdict = indelible.verify(model, key, test, queries=len(samples), normalize=run.normalize())
    return {
        "run": folder.name, "data": run.data, "verb": run.record.verb, "method": run.record.method,
        "seed": run.record.seed, "carriers": carriers, "ba": verdict.ba, "wsr": verdict.wsr,
        "p_labels": verdict.p_value, "p_scores": codebook_p_value(rank_scores(given), book.classes.numpy()),
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Compare all runs and add the rows to the records."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("runs", type=Path, nargs="+", help="folders of runs with a codebook")
    options.add_argument("--carriers", type=int, default=200, help="images for each mark (default: 200)")
    options.add_argument("--out", type=Path, default=Path("results/class-scores.json"))
    given = options.parse_args(argv)
    torch.set_num_threads(1)
    rows = json.loads(given.out.read_text()) if given.out.exists() else []
    for folder in given.runs:
        rows.append(compare(folder, given.carriers))
        print(json.dumps(rows[-1]), flush=True)
        given.out.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
