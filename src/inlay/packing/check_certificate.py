"""Check a certificate of plans without trusting what made it.

    python -m inlay.packing.check_certificate CERTIFICATE.json [BUFFERS.csv]

The certificate says where buffers are, how many bytes that takes, and that no plan takes less than its
bound; with a table of buffers beside it, also that the plans are of those. Ends with 0 if all of it is so,
with 1 and the names of what is wrong if not. The file needs nothing but the standard library: it shares no
code with the packer, so that no mistake can be in both, and is short, so that it can be read.

**Plans.** Each offset is a multiple of the alignment, and of two buffers that live at one moment no byte is
the same. Each row has a checksum, so that a row that was changed is named even where it still fits.

**Bounds.** The witness of a bound is one of two.

* `moment`: what lives then needs that many bytes. All offsets are multiples of the greatest common divisor
  of the alignments, so each buffer but the highest is followed by the bytes up to the next multiple: the
  sum of the sizes, rounded up to it, less the largest rounding.
* `buffers`: some of the buffers alone fit no plan of fewer bytes, which is tried out here. If there were
  such a plan, there would be one with the least sum of offsets. In it nothing can move down: each buffer
  is at the first aligned place above all that lie below it and live with it. So the buffers, in the order
  of their offsets, can be placed one after the other, each on what is there. All such orders are tried;
  a state that failed before is not tried again.

A certificate may say `unchecked`: a larger bound, which a longer search found, and which is not shown.
"""

from __future__ import annotations

import csv
import json
import sys
import zlib
from bisect import bisect_left, insort
from math import gcd
from pathlib import Path
from typing import Any

FORM, VERSION = "inlay packing certificate", 1
MOST_STATES = 50_000
"""States of a search beyond which a witness is refused."""
MOST_WITNESSES = 200
"""Buffers of a witness: the search is as deep."""


class Wrong(Exception):
    """What is wrong with a certificate."""


def is_a(value: Any, kind: type) -> bool:
    """Return whether what was read is of a kind: a truth is no integer."""
    return type(value) is kind


class Row:
    """A buffer, live in [lower, upper), and its offset."""

    def __init__(self, fields: Any) -> None:
        if not is_a(fields, list) or len(fields) != 7 or not is_a(fields[0], str):
            raise Wrong(f"found {str(fields)[:80]} for a buffer, needed an id and six integers")
        self.id: str = fields[0]
        if not all(is_a(x, int) for x in fields[1:]):
            raise Wrong(f"buffer '{self.id}' has what is no integer")
        numbers: list[int] = fields[1:]
        self.lower, self.upper, self.size, self.alignment, self.offset, self.checksum = numbers
        if self.size < 0 or self.alignment < 1 or self.upper < self.lower:
            raise Wrong(f"buffer '{self.id}' has no size, alignment or lifetime")

    @property
    def is_there(self) -> bool:
        """Whether it takes space at some moment."""
        return self.size > 0 and self.upper > self.lower

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.offset + self.size


def checksum(name: str, fields: list[str | int]) -> int:
    """Return the checksum of a row: of the name of its plan, its id and its five numbers."""
    return zlib.crc32(json.dumps([name, *fields]).encode())


def rounded(number: int, step: int) -> int:
    """Return the next multiple of a step."""
    return -(-number // step) * step


def check_rows(name: str, rows: list[Row]) -> None:
    """Check ids and alignments, then that no two share bytes, then checksums."""
    seen: set[str] = set()
    for r in rows:
        if r.id in seen:
            raise Wrong(f"buffer '{r.id}' is there twice")
        seen.add(r.id)
        if r.offset < 0 or r.offset % r.alignment:
            raise Wrong(f"buffer '{r.id}' at {r.offset} is not aligned to {r.alignment}")
    check_overlaps(rows)
    for r in rows:
        fields: list[str | int] = [r.id, r.lower, r.upper, r.size, r.alignment, r.offset]
        if r.checksum != checksum(name, fields):
            raise Wrong(
                f"buffer '{r.id}' was changed: it is at {r.offset}, and its checksum is of another row"
            )


def check_overlaps(rows: list[Row]) -> None:
    """Check that no two that live at one moment share a byte: a sweep over time, what ends first."""
    live: list[tuple[int, int]] = []  # offsets and rows in order: disjoint, so only neighbors can overlap
    events = [(r.lower, 1, i) for i, r in enumerate(rows) if r.is_there]
    events += [(r.upper, 0, i) for i, r in enumerate(rows) if r.is_there]
    for _, begins, i in sorted(events):
        r = rows[i]
        at = bisect_left(live, (r.offset, i))
        if not begins:
            del live[at]
            continue
        for _, j in live[max(at - 1, 0) : at + 1]:
            other = rows[j]
            if other.offset < r.end and r.offset < other.end:
                raise Wrong(
                    f"buffer '{other.id}' at [{other.offset}, {other.end}) and buffer '{r.id}' at "
                    f"[{r.offset}, {r.end}) live at {r.lower}, and share bytes"
                )
        insort(live, (r.offset, i))


def bound_of_moment(rows: list[Row], moment: int) -> int:
    """Return the bytes that what lives at a moment needs."""
    step = 0
    for r in rows:
        step = gcd(step, r.alignment) if r.is_there else step
    live = [r for r in rows if r.is_there and r.lower <= moment < r.upper]
    saved = max((rounded(r.size, step) - r.size for r in live), default=0)
    # A smaller step is a bound too: that of 1 is the sum.
    return max(sum(r.size for r in live), sum(rounded(r.size, step) for r in live) - saved if live else 0)


def fits(rows: list[Row], capacity: int, most: int = MOST_STATES) -> bool | None:
    """Return whether some buffers have a plan within a capacity; None after so many states.

    See the head of this file for why the orders that are tried are enough.
    """
    rows = [r for r in rows if r.is_there]
    begins = sorted({r.lower for r in rows})
    at = [[i for i, r in enumerate(rows) if r.lower <= t < r.upper] for t in begins]
    beside = [
        [j for j, o in enumerate(rows) if o.lower < r.upper and r.lower < o.upper and i != j]
        for i, r in enumerate(rows)
    ]
    failed: set[tuple[int, tuple[tuple[int, int], ...]]] = set()

    def is_short(low: dict[int, int], last: int) -> bool:
        """Whether at some moment what is left does not fit above where it can begin."""
        for live in at:
            left = [i for i in live if i in low]
            if left and min(max(low[i], last) for i in left) + sum(rows[i].size for i in left) > capacity:
                return True
        return False

    def search(low: dict[int, int], last: int) -> bool | None:
        """Try all that can be next: what is not placed, with its least offset, and the last offset."""
        nonlocal most
        if not low:
            return True
        state = (last, tuple(low.items()))
        if state in failed or is_short(low, last):
            return False
        most -= 1
        if most < 0:
            return None
        for i, offset in low.items():
            if offset < last:
                continue
            after = {j: x for j, x in low.items() if j != i}
            end = offset + rows[i].size
            for j in beside[i]:
                if j in after:
                    after[j] = max(after[j], rounded(end, rows[j].alignment))
            found = search(after, offset)
            if found is not False:
                return found
        failed.add(state)
        return False

    return search(dict.fromkeys(range(len(rows)), 0), 0)


def check_bound(plan: dict[str, Any], rows: list[Row]) -> str:
    """Check the witness of a bound; return what it is, in words."""
    bound: int = plan["bound"]
    witness: Any = plan.get("witness")
    if bound == 0 and witness is None:
        return "nothing is needed"
    by_id = {r.id: r for r in rows}
    if is_a(witness, dict) and is_a(moment := witness.get("moment"), int):
        needed = bound_of_moment(rows, moment)
        if needed < bound:
            raise Wrong(f"what lives at {moment} needs {needed} bytes, not {bound}")
        return f"what lives at {moment} needs them"
    names: Any = witness.get("buffers") if is_a(witness, dict) else None
    if not is_a(names, list) or len(names) > MOST_WITNESSES:
        raise Wrong(f"found no witness of the bound of {bound} bytes, needed a moment or buffers")
    if not all(is_a(n, str) and n in by_id for n in names):
        raise Wrong("the witness of the bound names buffers that are not there")
    found = fits([by_id[n] for n in names], bound - 1)
    if found is None:
        raise Wrong(f"the witness of the bound, {len(names)} buffers, has more than {MOST_STATES} states")
    if found:
        raise Wrong(f"the buffers {', '.join(names)} fit into less than {bound} bytes")
    return f"{len(names)} buffers alone fit no plan of less"


def check_plan(plan: Any) -> str:
    """Check a plan of a certificate; return what is right about it, in words."""
    if not is_a(plan, dict) or not is_a(plan.get("name"), str) or not is_a(plan.get("buffers"), list):
        raise Wrong("needed a name and buffers")
    peak, bound, proved = (plan.get(key) for key in ("peak", "bound", "proved"))
    if not (is_a(peak, int) and is_a(bound, int) and is_a(proved, bool)):
        raise Wrong("needed peak and bound, which are integers, and proved, which is true or false")
    rows = [Row(fields) for fields in plan["buffers"]]
    check_rows(plan["name"], rows)
    needed = max((r.end for r in rows if r.is_there), default=0)
    if peak != needed:
        raise Wrong(f"found a peak of {peak} bytes, but the buffers end at {needed}")
    reason = check_bound(plan, rows)
    if proved != (peak == bound):
        raise Wrong(f"found proved: {proved}, with a peak of {peak} and a bound of {bound} bytes")
    capacity, within = plan.get("capacity"), plan.get("within")
    if within is True and not (is_a(capacity, int) and peak <= capacity):
        raise Wrong(f"found a plan of {peak} bytes for a capacity of {capacity}")
    if within not in (True, False, None) or (
        within is False and not (is_a(capacity, int) and bound > capacity)
    ):
        raise Wrong(f"a bound of {bound} bytes does not forbid plans within {capacity}")
    text = f"{len(rows)} buffers in {peak} bytes, no two in one place; at least {bound}: {reason}"
    return text + (f"; not shown: at least {plan['unchecked']}" if plan.get("unchecked") else "")


def check_table(plans: list[Any], path: Path) -> None:
    """Check that plans are of the buffers of a table."""
    found = {row[0]: (plan["name"], *row[1:5]) for plan in plans for row in plan["buffers"]}
    with path.open(encoding="utf-8-sig", newline="") as stream:
        for fields in csv.DictReader(stream):
            row = {(k or "").strip(): str(v or "").strip() for k, v in fields.items()}
            numbers = (int(row.get(n, 1)) for n in ("lower", "upper", "size", "alignment"))
            wanted = (row.get("memory", ""), *numbers)
            if found.get(row["id"]) != wanted:
                raise Wrong(f"buffer '{row['id']}' is {found.get(row['id'])} here and {wanted} in {path}")
            del found[row["id"]]
    if found:
        raise Wrong(f"buffer '{next(iter(found))}' is not in {path}")


def check(certificate: Any) -> list[str]:
    """Check a certificate that was read from JSON.

    Raises:
        Wrong: names what does not hold.
    """
    if not is_a(certificate, dict) or certificate.get("form") != FORM:
        raise Wrong(f"this is no {FORM}")
    if certificate.get("version") != VERSION or not is_a(certificate.get("plans"), list):
        raise Wrong(f"found version {certificate.get('version')}, needed {VERSION} and plans")
    texts: list[str] = []
    for index, plan in enumerate(certificate["plans"]):
        try:
            text = check_plan(plan)
            texts.append(f"plan '{plan['name']}': {text}")
        except Wrong as wrong:
            name = plan.get("name") if is_a(plan, dict) else None
            raise Wrong(f"plan {index + 1}, '{name}': {wrong}") from None
    return texts


def main(words: list[str]) -> int:
    """Check the files of a command line; return its exit code."""
    if len(words) not in (1, 2):
        print("usage: check_certificate CERTIFICATE.json [BUFFERS.csv]", file=sys.stderr)
        return 2
    try:
        certificate = json.loads(Path(words[0]).read_text(encoding="utf-8"))
        texts = check(certificate)
        if len(words) == 2:
            check_table(certificate["plans"], Path(words[1]))
    except (Wrong, OSError, ValueError, KeyError, RecursionError) as failure:
        print(f"refused: {type(failure).__name__ if not str(failure) else failure}", file=sys.stderr)
        return 1
    print("\n".join(ascii(text)[1:-1] for text in texts))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
