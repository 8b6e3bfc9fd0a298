"""Reports from records: tables for terminal, Markdown, LaTeX and HTML, figures, and self-contained HTML pages."""

from indelible.report.run_page import write_report
from indelible.report.run_tables import markdown_table, terminal_table
from indelible.report.table_documents import FORMATS, write_tables
from indelible.report.table_filling import measured_tables, reported_tables
from indelible.report.table_layouts import TABLES, Axis, Condition, Layout

__all__ = [
    "FORMATS",
    "TABLES",
    "Axis",
    "Condition",
    "Layout",
    "markdown_table",
    "measured_tables",
    "reported_tables",
    "terminal_table",
    "write_report",
    "write_tables",
]
