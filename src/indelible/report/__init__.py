"""Reports from records: tables for terminal, Markdown, LaTeX and HTML, figures, and self-contained HTML pages."""

from indelible.report.documents import FORMATS as FORMATS
from indelible.report.documents import write_report as write_report
from indelible.report.documents import write_tables as write_tables
from indelible.report.run_tables import markdown_table as markdown_table
from indelible.report.run_tables import terminal_table as terminal_table
from indelible.report.table_filling import measured_tables as measured_tables
from indelible.report.table_filling import reported_tables as reported_tables
from indelible.report.table_layouts import TABLES as TABLES
from indelible.report.table_layouts import Axis as Axis
from indelible.report.table_layouts import Condition as Condition
from indelible.report.table_layouts import Layout as Layout
