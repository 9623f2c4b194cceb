"""The rows of a delimited text file: a header or none, and cells that are numbers or times, each with its line.

Commas, semicolons and tabs separate; cells may be quoted; a first line ``sep=;``, as spreadsheets write it, is obeyed.
Of several columns, that of the times is the first or the one that is named; of several series beside it, one is chosen
by its name.
"""

from __future__ import annotations

import csv
import io
import math
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

import numpy as np

from executor.names import did_you_mean, spelled_as
from workloads.arrays import FloatArray
from workloads.errors import TraceError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - what times without a zone are counted from

_BLANK = {"", "-", "null", "nan"}
"""What monitors write where they know nothing, in lower case."""

_FOR_DISPLAY = re.compile(r"\d[\d.,'\s]*\D*")
"""Numbers with a unit or with separators between their digits."""

_PIECE = 2**20
"""Characters that are cut into lines at a time."""

_MOST_NAMED = 8
"""So many series are named in a refusal."""

_SEPARATOR_LINE = re.compile(r'"?sep=([,;\t|])"?', re.IGNORECASE)


@dataclass(frozen=True)
class TraceRows:
    """A file's rows, read when they are asked for.

    Attributes:
        name: The file's, for messages.
        text: All of it, perhaps below a line that the file has not.
        separator: Between cells.
        names: The cells of the line above the first row; ``None`` where the first line is a row.
        n_above: Lines above the first row; the last of them is the header, if there is one.
        n_cells: Cells of the first line.
        has_instants: Whether the first row's time is a date and a time rather than a number.
        chosen: The place of the one series that is read beside the times; ``None``: all cells are read.
        time: The place of the times; they are read first.
        n_made: Lines at the top that the file has not, whose numbers are not counted.
    """

    name: str
    text: str
    separator: str
    names: tuple[str, ...] | None
    n_above: int
    n_cells: int
    has_instants: bool
    chosen: int | None = None
    time: int = 0
    n_made: int = 0

    @property
    def header(self) -> tuple[str, ...] | None:
        """The names of the cells that are read, in lower case."""
        return None if self.names is None else tuple(name.lower() for name in self._read(self.names))

    @property
    def n_columns(self) -> int:
        """How many cells of a row are read."""
        return self.n_cells if self.chosen is None else 2

    @property
    def has_blank_lines(self) -> bool:
        """Whether a line between two rows holds nothing, or empty quotation marks."""
        seen = False, False  # a row; a blank line behind it
        for line in lines_of(self.text, self.n_above):
            is_row = bool(line.strip(' \t"\n'))
            if is_row and all(seen):
                return True
            seen = seen[0] or is_row, (seen[0] and not is_row) or seen[1]
        return False

    @property
    def has_zone(self) -> bool:
        """Whether its times are dates with a time zone: all have one, or none."""
        line, cells = self.row(0)
        return self.has_instants and _instant(self.name, line, "time", cells[0])[1]

    @property
    def series(self) -> tuple[str, ...]:
        """The names of all cells but the times', as they are written; none without a header."""
        return () if self.names is None else tuple(_without(self.names, self.time))

    def _read(self, cells: Sequence[str]) -> Sequence[str]:
        if self.chosen is not None:
            return cells[self.time], cells[self.chosen]
        return (cells[self.time], *_without(cells, self.time)) if self.time else cells

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Each row's line and cells, stripped; blank lines are left out.

        Raises:
            TraceError: A row has more or fewer cells than the first line.
        """
        reader = csv.reader(lines_of(self.text, self.n_above), delimiter=self.separator)
        while True:
            try:
                cells = next(reader, None)
            except csv.Error as error:
                line = self._line(reader.line_num)
                raise TraceError(f"{self.name} line {line}: {error}; is a quotation mark left open?") from None
            if cells is None:
                return
            if len(cells) > 1 or (cells and cells[0].strip()):
                line = self._line(reader.line_num)
                if len(cells) != self.n_cells:
                    raise TraceError(
                        f"{self.name} line {line}: {quoted(self.separator.join(cells))} has {len(cells)} columns; "
                        f"{self.n_cells} are needed, as in the first line"
                    )
                yield line, [cell.strip() for cell in self._read(cells)]

    def _line(self, number: int) -> int:
        """The number in the file of a line below the header."""
        return self.n_above + number - self.n_made

    def row(self, index: int) -> tuple[int, list[str]]:
        """The line and the cells of one row.

        Raises:
            TraceError: There are not so many.
        """
        found = next(islice(self.rows(), index, None), None)
        if found is None:
            raise TraceError(f"{self.name}: no rows below the header; a trace needs at least one")
        return found

    def columns(self, names: Sequence[str | None], *, blanks: bool = False) -> FloatArray:
        """The cells as finite numbers ≥ 0, ``(n_rows, n_columns)``; dates as microseconds of the epoch.

        Args:
            names: What messages call each column; columns called ``None`` are not read, and hold 0.
            blanks: Whether cells of the last column may hold nothing, or ``null``, ``NaN`` or ``-``; they become NaN.

        Raises:
            TraceError: Another number of columns, no row, or a cell that is neither number nor time.
        """
        if len(names) != self.n_columns:
            line, cells = self.row(0) if self.header is None else (self.n_above, list(self.header))
            raise TraceError(
                f"{self.name} line {line}: {quoted(self.separator.join(cells))} has {len(cells)} columns; "
                f"{len(names)} are needed"
            )
        is_other = self.has_instants or None in names or self.chosen is not None or self.time > 0
        found = None if is_other else self._fast()
        if found is None:
            found = self._slow(names, blanks)
        if not len(found):
            raise TraceError(f"{self.name}: no rows below the header; a trace needs at least one")
        return found

    def _fast(self) -> FloatArray | None:
        """As :meth:`columns`, a tenth of the time; ``None`` where a cell at least is no such number."""
        if not any(line.strip() for line in lines_of(self.text, self.n_above)):
            return None
        lines = lines_of(self.text, self.n_above)
        try:
            found = np.loadtxt(lines, delimiter=self.separator, quotechar='"', comments=None, ndmin=2)
        except ValueError:
            return None
        is_good = found.shape[1] == self.n_columns and bool(np.all(np.isfinite(found) & (found >= 0)))
        return found if is_good else None

    def _slow(self, names: Sequence[str | None], blanks: bool = False) -> FloatArray:
        """As :meth:`columns`, cell by cell, so that a refusal names the line."""
        found = array("d")
        n_instants = 1 if self.has_instants else 0
        numbers = [(place, name) for place, name in enumerate(names) if name is not None and place >= n_instants]
        has_zone: bool | None = None
        for line, cells in self.rows():
            values = [0.0] * len(names)
            if n_instants:
                microseconds, zone = _instant(self.name, line, names[0] or "time", cells[0])
                if has_zone is not None and zone != has_zone:
                    raise TraceError(
                        f"{self.name} line {line}: {names[0]} is {quoted(cells[0])}; times with and without a time "
                        "zone cannot be in one file"
                    )
                values[0], has_zone = microseconds, zone
            for place, name in numbers:
                if blanks and place == len(names) - 1 and cells[place].lower() in _BLANK:
                    values[place] = math.nan
                else:
                    values[place] = _number(self.name, line, name, cells[place], is_time=place < len(names) - 1)
            found.extend(values)
        return np.array(found, dtype=np.float64).reshape(-1, len(names))


def trace_rows(
    name: str, text: str, column: str | None = None, time_column: str | None = None, n_made: int = 0
) -> TraceRows:
    """The rows of the text; with ``column`` only the times and the series of that name are read.

    ``time_column`` has the times, by default the first; ``n_made`` lines at the top are not the file's.

    Raises:
        TraceError: There is no row, or not one such column.
    """
    filled = ((line, content) for line, content in enumerate(lines_of(text), 1) if content.strip())
    head = list(islice(filled, 3))
    separator = None
    if head and (said := _SEPARATOR_LINE.fullmatch(head[0][1].rstrip("\n"))):
        separator = said[1]
        head = head[1:]
    if not head:
        raise TraceError(f"{name}: the file is empty; a trace needs at least one request line")
    separator = separator or next((one for one in "\t;" if len(_cells(head[0][1], one)) > 1), ",")
    first = _cells(head[0][1], separator)
    if is_number(first[0]) or is_instant(first[0]):
        for key, value in (("column", column), ("time_column", time_column)):
            if value is not None:
                raise TraceError(f"{name}: arrivals.{key} is {quoted(value)}; the file has no header with names")
        return TraceRows(name, text, separator, None, head[0][0] - 1, len(first), is_instant(first[0]))
    time = 0 if time_column is None else _time_place(name, first, time_column)
    below = [*(_cells(head[1][1], separator) if len(head) > 1 else ()), *[""] * len(first)][time]
    chosen = None
    if column is not None:
        places = [place for place in range(len(first)) if place != time]
        chosen = places[place_of(name, [(first[place],) for place in places], column)]
    has_instants = is_instant(below) and not is_number(below)
    return TraceRows(name, text, separator, tuple(first), head[0][0], len(first), has_instants, chosen, time, n_made)


def _time_place(name: str, names: Sequence[str], time_column: str) -> int:
    """The place of the column of times that the config names."""
    known = spelled_as(time_column, names)
    if names.count(known) == 1:
        return names.index(known)
    shown = listed(names)
    if known in names:
        raise TraceError(f"{name}: arrivals.time_column is {quoted(known)}, as several columns are called: {shown}")
    hint = did_you_mean(time_column, names)
    raise TraceError(f"{name}: arrivals.time_column is {quoted(time_column)}{hint}; its columns: {shown}")


def _without(cells: Sequence[str], place: int) -> Iterator[str]:
    return (cell for at, cell in enumerate(cells) if at != place)


def place_of(name: str, series: Sequence[Sequence[str]], column: str | None) -> int:
    """The place of the series that ``column`` names, or of the only one; the case of letters tells them apart last.

    Args:
        name: The file's.
        series: What each may be called, its full name first.
        column: What was asked for.

    Raises:
        TraceError: No series or several are called that, or none is chosen of several; lists their full names.
    """
    if column is None and len(series) == 1:
        return 0
    known = [alias for names in series for alias in names]
    wanted = None if column is None else spelled_as(column, known)
    by_name = [place for place, names in enumerate(series) if names[0] == wanted]
    fitting = by_name or [place for place, names in enumerate(series) if wanted in names]
    if len(fitting) == 1:
        return fitting[0]
    shown = listed([series[place][0] for place in (fitting or range(len(series)))])
    if column is None:
        raise TraceError(f"{name}: it has {len(series)} series; arrivals.column chooses one of {shown}")
    if fitting:
        raise TraceError(f"{name}: arrivals.column is {quoted(column)}, as {len(fitting)} series are called: {shown}")
    hint = did_you_mean(column, known)
    raise TraceError(f"{name}: arrivals.column is {quoted(column)}{hint}; its series: {shown or 'none'}")


def listed(names: Sequence[str]) -> str:
    """The first few names as a refusal shows them."""
    shown = ", ".join(map(repr, names[:_MOST_NAMED]))
    return f"{shown} and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else shown


def lines_of(text: str, n_skipped: int = 0) -> Iterator[str]:
    """The text's lines from ``n_skipped`` on, however they end; each ends in a line feed, but perhaps the last."""
    return islice(_all_lines(text), n_skipped, None)


def _all_lines(text: str) -> Iterator[str]:
    # A StringIO takes four times its text: one of all lines, or of one that is long, would take too much.
    begin = 0
    while begin < len(text):
        end = text.find("\n", begin + _PIECE) + 1 or len(text)
        piece = text[begin:end]
        is_one_line = piece.find("\n", 0, -1) < 0 and "\r" not in piece
        yield from (piece,) if is_one_line else io.StringIO(piece, newline=None)
        begin = end


def _cells(line: str, separator: str) -> list[str]:
    try:
        cells = next(csv.reader([line], delimiter=separator), [])
    except csv.Error:
        cells = line.split(separator)
    return [cell.strip() for cell in cells] or [""]


def quoted(text: str) -> str:
    """The text as a message shows it: in quotation marks, on one line, not too long."""
    return repr(text if len(text) <= 60 else f"{text[:57]}…")


def is_number(text: str) -> bool:
    """Whether the text writes a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_instant(text: str) -> bool:
    """Whether the text is a date, or a date and a time, as ISO 8601 writes them, and no number."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return not is_number(text)


def _number(name: str, line: int, column: str, text: str, *, is_time: bool) -> float:
    """The finite number ≥ 0 that the text writes."""
    try:
        # Python reads 1_000 as a number; in a data file it is a slip.
        value = math.nan if "_" in text else float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        needed = "a finite number ≥ 0 is needed"
        if is_time:
            needed = "a number ≥ 0 or a time like 2023-11-16 18:17:03 is needed"
        elif _FOR_DISPLAY.fullmatch(text):
            needed += ", such as 1200.5 (Grafana: export with Formatted data off)"
        raise TraceError(f"{name} line {line}: {column} is {quoted(text)}; {needed}")
    return value


def _instant(name: str, line: int, column: str, text: str) -> tuple[float, bool]:
    """The microseconds of the epoch that the text writes, a whole number, and whether it has a time zone."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise TraceError(
            f"{name} line {line}: {column} is {quoted(text)}; a time like 2023-11-16 18:17:03.9799600 is needed"
        ) from None
    has_zone = instant.tzinfo is not None
    since = instant - (_EPOCH if has_zone else _NAIVE_EPOCH)
    return (since.days * 86_400.0 + since.seconds) * 1e6 + since.microseconds, has_zone
