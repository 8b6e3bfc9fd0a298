"""The paper's tables: one description per table, filled with reported and measured numbers, printed in four forms."""

from indelible.report.paper.documents import FORMATS, write_tables
from indelible.report.paper.layouts import LAYOUTS, MAIN
from indelible.report.paper.sources import measured_tables, reported_tables

__all__ = ["FORMATS", "LAYOUTS", "MAIN", "measured_tables", "reported_tables", "write_tables"]
