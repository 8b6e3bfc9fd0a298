"""Speed side by side: training steps by method, memory, the data pipeline, attacks, verification, grid throughput."""

from indelible.bench.speed.check import Finding, check_speed
from indelible.bench.speed.document import Row, rows_of, speed_document, speed_table
from indelible.bench.speed.run import PARTS, Unit, choose_units, measure_units
from indelible.bench.speed.steps import plain_rate

__all__ = [
    "PARTS",
    "Finding",
    "Row",
    "Unit",
    "check_speed",
    "choose_units",
    "measure_units",
    "plain_rate",
    "rows_of",
    "speed_document",
    "speed_table",
]
