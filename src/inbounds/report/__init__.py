"""Pages made of results: one self-contained HTML file, or Markdown beside its pictures."""

from inbounds.report.content import Claim as Claim
from inbounds.report.content import Report as Report
from inbounds.report.content import Section as Section
from inbounds.report.content import Table as Table
from inbounds.report.markdown import write_markdown as write_markdown
from inbounds.report.page import write_page as write_page
