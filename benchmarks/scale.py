"""Prints what a fit costs, and what its router costs to load and to ask, for tables of growing size.

    OMP_NUM_THREADS=1 nice python -m benchmarks.scale --page docs/scale.md
    OMP_NUM_THREADS=1 nice python -m benchmarks.scale --rows 120000 --samples 10000 30000 --page docs/scale.md

The tables are synthetic: each prompt is a request of about 30 words about two subjects, put together from the
word lists below, so that the embedder reads real texts. Five specialists differ in fee and in how well they
know each field, each subject and each pair of subjects; a score is 1 or 0 by chance. Every row of the page is
measured in two new processes: one fits and saves, the other loads and routes.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tools.pages import put

from pandora_router import Router
from pandora_router.data import Table, resplit
from pandora_router.data.splits import SAMPLE
from pandora_router.search import kernels

ROWS = (20_000, 120_000, 1_000_000)
COST = 0.005  # of one purchase of costly estimates
ROUTES = 1000  # fresh prompts that are routed one by one
FRESH = 20_000  # fresh prompts on which samples are compared
FEES = {"tiny": 0.0, "small": 0.02, "medium": 0.05, "large": 0.12, "expert": 0.2}
FIELDS = {
    "algebra": "matrix polynomial eigenvalue group ring kernel determinant basis lattice root vector field",
    "medicine": "fever dosage antibiotic tumour vaccine artery insulin kidney allergy biopsy nerve placebo",
    "law": "contract tort statute appeal liability patent tenant custody verdict warrant trustee clause",
    "cooking": "dough saffron marinade broth custard oven garlic lentil pastry simmer yeast caramel",
    "astronomy": "galaxy comet eclipse quasar orbit telescope nebula pulsar redshift asteroid moon corona",
    "finance": "bond dividend hedge mortgage inflation equity audit ledger option yield tariff annuity",
    "programming": "recursion mutex compiler pointer socket iterator cache thread schema regex closure heap",
    "history": "empire treaty siege dynasty monarch famine crusade colony revolt parliament plague senate",
    "biology": "enzyme chloroplast mitosis genome protein predator fungus larva membrane pollen virus gland",
    "music": "fugue tempo chord cello octave sonata rhythm choir melody drum ballad trumpet",
    "travel": "visa harbour glacier hostel passport ferry safari itinerary cathedral island customs trail",
    "chemistry": "polymer catalyst isotope solvent titration acid molecule oxide alloy electron salt ester",
}
VERBS = "explain compare derive summarise criticise translate estimate plan prove outline debug classify"
STYLES = "briefly carefully formally in plain words step by step with an example for a child as a table"
FILLER = (
    "while our team waits because the client asked although nobody agrees since last winter before the "
    "meeting with limited data under strict rules for a small town without any diagrams using only facts "
    "that everybody can check and keeping in mind what was said about the older method"
)


def made(rows: int, seed: int = 0) -> tuple[list[str], list[str], np.ndarray]:
    """Prompts, their fields, and the chance (rows, 5) that each specialist answers them rightly."""
    rng = np.random.default_rng([rows, seed])
    subjects = [word for words in FIELDS.values() for word in words.split()]
    per_field = len(subjects) // len(FIELDS)
    fixed = np.random.default_rng(23)  # the specialists are the same for every table
    known = [fixed.normal(0.0, spread, size) for spread, size in (
        (0.7, (len(FIELDS), 5)), (0.5, (len(subjects), 5)), (0.5, (len(subjects), len(subjects), 5)),
    )]  # fmt: skip
    first = rng.integers(len(subjects), size=rows)
    near = per_field * (first // per_field) + rng.integers(per_field, size=rows)
    second = np.where(rng.random(rows) < 0.7, near, rng.integers(len(subjects), size=rows))
    verb = rng.integers(len(VERBS.split()), size=rows)
    hard = fixed.normal(0.0, 0.8, len(VERBS.split()))
    skill = np.linspace(-0.6, 1.2, 5)
    worth = skill + known[0][first // per_field] + known[1][first] + known[1][second]
    worth = worth + known[2][first, second] - hard[verb][:, None]
    return _texts(rng, subjects, first, second, verb), _fields(first // per_field), 1 / (1 + np.exp(-worth))


def _texts(
    rng: np.random.Generator, subjects: list[str], first: np.ndarray, second: np.ndarray, verb: np.ndarray
) -> list[str]:
    verbs, filler = VERBS.split(), FILLER.split()
    styles = ["briefly", "carefully", "formally", *STYLES.split(maxsplit=3)[3:]]
    start = rng.integers(len(filler), size=(len(first), 2)).tolist()
    length = rng.integers(4, 14, size=len(first)).tolist()
    style, number = rng.integers(len(styles), size=len(first)).tolist(), rng.integers(10**6, size=len(first))
    twice = filler + filler
    return [
        f"Please {verbs[v]} {styles[s]} how the {subjects[a]} relates to the {subjects[b]} "
        f"{' '.join(twice[i : i + n])}, case {m}, {' '.join(twice[j : j + 6])}."
        for v, s, a, b, (i, j), n, m in zip(
            verb.tolist(), style, first.tolist(), second.tolist(), start, length, number.tolist(), strict=True
        )
    ]


def _fields(numbers: np.ndarray) -> list[str]:
    names = list(FIELDS)
    return [names[i] for i in numbers.tolist()]


def table(rows: int, seed: int = 0) -> Table:
    """A table of so many scored prompts, with the usual split."""
    prompts, fields, chance = made(rows, seed)
    right = np.random.default_rng([rows, seed, 1]).random(chance.shape) < chance
    fee = np.broadcast_to(np.array(list(FEES.values())), chance.shape)
    ids, blank = [str(i) for i in range(rows)], np.full(rows, "")
    return resplit(Table(ids, prompts, fields, blank, tuple(FEES), right.astype(float), fee), seed=0)


def fit(rows: int, sample: int, folder: Path) -> dict[str, Any]:
    """Fit and save; CPU-seconds of both, peak memory of the process, size of the artifact."""
    kernels.warm()
    known = table(rows)
    begun = time.process_time()
    router = Router.fit(known, inspection_cost=COST, sample=sample)
    router.save(folder)
    return {
        "rows": rows,
        "sample": sample,
        "fit": time.process_time() - begun,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "size": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20,
    }


def ask(folder: Path) -> dict[str, Any]:
    """Load, route once, then route fresh prompts one by one; processor seconds, and memory.

    One thread does all of it: on an idle machine that has the files in memory, the clock shows the same.
    """
    prompts, _, _ = made(ROUTES, seed=7)
    begun = time.process_time()
    router = Router.load(folder)
    router.route(prompts[0])
    loaded, seconds = time.process_time() - begun, []
    for prompt in prompts:
        begun = time.process_time()
        router.route(prompt)
        seconds.append(time.process_time() - begun)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"load": loaded, "p50": 1e3 * float(np.median(seconds)), "memory": memory}


def worth(folder: Path) -> np.ndarray:
    """Chance to be right minus fee minus what was spent, of decisions on fresh prompts (FRESH,)."""
    router = Router.load(folder)
    prompts, _, chance = made(FRESH, seed=99)
    decisions = router.route_batch(prompts)
    places = [list(FEES).index(decision.specialist) for decision in decisions]
    spent = np.array([decision.trace.spent for decision in decisions])
    return chance[np.arange(FRESH), places] - np.array(list(FEES.values()))[places] - spent


def measured(rows: int, sample: int, kept: Path) -> dict[str, Any]:
    """Everything about one fit, in processes of its own; read from `kept` if it was measured before."""
    folder = kept / f"{rows}-{sample}"
    facts = folder.with_suffix(".json")
    if not facts.is_file():
        fitted = _alone("--fit", folder, "--rows", rows, "--sample", sample)
        served = _alone("--ask", folder)
        facts.write_text(json.dumps(fitted | served))
    read: dict[str, Any] = json.loads(facts.read_text())
    return read | {"folder": folder}


def _alone(*words: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.scale", *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def sizes(facts: Sequence[dict[str, Any]]) -> str:
    """The table of sizes."""
    lines = [
        "| scored prompts | sample | fit, CPU-s | peak memory, GiB | artifact, MiB "
        "| load + first route, CPU-s | route p50, CPU-ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in facts:
        cells = (
            f"{row['rows']:,}",
            f"{row['sample']:,}",
            f"{row['fit']:.0f}",
            f"{row['peak']:.1f}",
            f"{row['size']:.0f}",
        )
        lines.append(f"| {' | '.join(cells)} | {row['load']:.2f} | {row['p50']:.2f} |")
    return "\n".join(lines)


def samples(facts: Sequence[dict[str, Any]]) -> str:
    """The table of samples: what each router is worth, and how much less than the last one, in 1e-3."""
    lines = ["| sample | fit, CPU-s | net worth | minus that of the last row, in 1e-3 |", "|---|---|---|---|"]
    worths = [worth(row["folder"]) for row in facts]
    for row, each in zip(facts, worths, strict=True):
        gap = 1e3 * (each - worths[-1])
        error = gap.std(ddof=1) / np.sqrt(FRESH)
        size = "everything" if row["sample"] >= row["rows"] else f"{row['sample']:,}"
        lead = "" if each is worths[-1] else f"{gap.mean():+.2f} ({error:.2f})"
        lines.append(f"| {size} | {row['fit']:.0f} | {each.mean():.4f} | {lead} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, help="sizes of the tables")
    parser.add_argument("--samples", type=int, nargs="+", help="compare these at the first of --rows instead")
    parser.add_argument("--keep", type=Path, help="folder for routers and numbers, measured once")
    parser.add_argument("--page", type=Path, help="page to write the table into")
    for hidden in ("--fit", "--ask"):
        parser.add_argument(hidden, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--sample", type=int, default=SAMPLE, help="most training prompts that trees read")
    chosen = parser.parse_args(arguments)
    if chosen.fit or chosen.ask:
        facts = fit(chosen.rows[0], chosen.sample, chosen.fit) if chosen.fit else ask(chosen.ask)
        print(json.dumps(facts))
        return
    with tempfile.TemporaryDirectory() as place:
        kept = chosen.keep or Path(place)
        kept.mkdir(parents=True, exist_ok=True)
        if chosen.samples:
            first = chosen.rows[0]
            text = samples([measured(first, sample, kept) for sample in (*chosen.samples, first)])
        else:
            text = sizes([measured(rows, chosen.sample, kept) for rows in chosen.rows])
    print(text)
    if chosen.page is not None:
        put(text, chosen.page, "samples" if chosen.samples else "sizes")


if __name__ == "__main__":
    main()
