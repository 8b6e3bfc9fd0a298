"""Is a weak mark shown when more images are asked? Ask attacked models on more carriers per mark.

Run it: python experiments/more_carriers.py runs/app-rehearse ... --carriers 200 1000

Rows are added to results/more-carriers.json; what is there already is not asked again. The table is in
docs/threat-model.md. Half a minute for 1,000 carriers per mark on one core.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import indelible


def measure(run: indelible.Run, method: str, carriers: int) -> dict[str, Any]:
    """Ask one run's model on so many carriers per mark."""
    key, (_, _, test) = run.key(), run.images()
    count = carriers * (key.marks or 1)
    verdict = indelible.verify(run.model(), key, test, max_samples=count, normalize=run.normalize())
    return {
        "method": method, "attack": run.record.method, "seed": run.record.seed, "carriers": carriers,
        "digest": run.record.metrics["model_digest"], "ba": verdict.ba, "wsr": verdict.wsr,
        "p_value": verdict.p_value, "owned": verdict.owned,
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is not in the file yet."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("runs", type=Path, nargs="+")
    options.add_argument("--method", required=True, help="what the table calls the watermark, such as rehearsed")
    options.add_argument("--carriers", type=int, nargs="+", default=[200, 1000])
    options.add_argument("--out", type=Path, default=Path("results/more-carriers.json"))
    given = options.parse_args(argv)
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = json.loads(given.out.read_text()) if given.out.exists() else []
    for folder in given.runs:
        run = indelible.Run.load(folder)
        for carriers in given.carriers:
            name = run.record.metrics["model_digest"], carriers
            if any((row["digest"], row["carriers"]) == name for row in rows):
                continue
            rows.append(measure(run, given.method, carriers))
            given.out.write_text(json.dumps(rows, indent=1) + "\n")
            print(f"{folder}, {carriers} carriers per mark: p = {rows[-1]['p_value']:.1g}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
