"""Reports from records: the before/after table for terminal and Markdown, and one self-contained HTML page."""

from indelible.report.page import write_report
from indelible.report.table import markdown_table, terminal_table

__all__ = ["markdown_table", "terminal_table", "write_report"]
