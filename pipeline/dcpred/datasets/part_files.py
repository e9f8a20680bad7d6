"""Files beside those of a table, which may hold rows of it."""

from pathlib import Path

from dcpred.public.remarks import add_remarks
from dcpred_tasks.tables.table_files import passed_over


def record_passed_over(data: str | Path) -> None:
    """Remark on files that are ignored, though their names look like rows."""
    if (remark := passed_over(data)) is not None:
        add_remarks(remark)
