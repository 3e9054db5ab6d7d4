"""The figures of the long runs: kept as JSON under build/, shown as one table in docs/trust.md."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FULL = os.environ.get("TRUST") == "full"
"""Whether this is `make trust`: sizes as promised, and figures written down."""

_FOLDER = ROOT / "build" / "trust"
_PAGE = ROOT / "docs" / "trust.md"
_BEGIN, _END = "<!-- figures -->", "<!-- end of figures -->"
PIECES = (
    "overload",
    "flood",
    "faults",
    "soak",
    "truth",
    "fuzz",
    "coverage fuzz",
    "security",
    "upgrade",
)


@dataclass(frozen=True)
class Row:
    """One line of the table: what was asked, what was found, what was wanted."""

    what: str
    found: str
    aim: str = ""
    met: bool = True


def record(piece: str, rows: list[Row]) -> None:
    """Write the figures of one piece; short runs write none."""
    for row in rows:
        print(f"{piece}: {row.what}: {row.found}{'' if row.met else ', missed'}", file=sys.stderr)
    if FULL:
        _FOLDER.mkdir(parents=True, exist_ok=True)
        path = _FOLDER / f"{piece}.json"
        path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


def table(before: str) -> str:
    """The table in Markdown; pieces that were not run here keep the rows they had before."""
    lines = ["| | measured | aim |", "|---|---|---|"]
    for piece in PIECES:
        path = _FOLDER / f"{piece}.json"
        if not path.exists():
            lines += [line for line in before.splitlines() if line.startswith(f"| {piece}: ")]
            continue
        for fields in json.loads(path.read_text()):
            row = Row(**fields)
            aim = row.aim if row.met else f"{row.aim}, missed"
            lines.append(f"| {piece}: {row.what} | {row.found} | {aim} |")
    return "\n".join(lines)


def render() -> None:
    """Put the table into the page."""
    page = _PAGE.read_text()
    before, _, rest = page.partition(_BEGIN)
    old, _, after = rest.partition(_END)
    _PAGE.write_text(f"{before}{_BEGIN}\n{table(old)}\n{_END}{after}")


if __name__ == "__main__":
    render()
