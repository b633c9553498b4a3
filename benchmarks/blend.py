"""The fine-tuned transformer blended with the boosted stack: squared error against kNN-3, the paper's f.

    OMP_NUM_THREADS=1 nice -n 19 python -m benchmarks.blend [folder ...] [--page PAGE]

Per folder (`PLANS`): `BlendRecipe` is fitted on at least 4,000 training prompts (or all there are), and the
squared error of kNN-3, of the stack, of the transformers and of their blend is measured on the same test
prompts, with paired standard errors over prompts. Finished epochs of each fold and finished folders are kept
in the cache, so a run that is broken off goes on; `--kept` shows what is there and fits nothing.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from paper.blend import BlendRecipe
from tools.pages import put

from benchmarks.estimators import read
from benchmarks.kept import CACHE, kept, paired, per_prompt, write_json
from pandora_router.data import Table
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.folders import replace_text
from pandora_router.router import StackRecipe, TransformerRecipe


@dataclass(frozen=True)
class Plan:
    """How much of a folder is fitted and tested, and how the transformers learn."""

    train: int = 5000
    test: int = 2000
    specialists: tuple[str, ...] | None = None
    peek: int = 0
    tokens: int = 128
    layers: int = 2
    epochs: int = 2
    folds: int = 3

    def recipe(self) -> BlendRecipe:
        """The blend that these settings describe."""
        form: Literal["all", "named"] = "named" if self.peek else "all"
        tuned = TransformerRecipe(form, self.peek or None, self.tokens, self.layers, self.epochs)
        return BlendRecipe(StackRecipe(peek=self.peek), tuned, self.folds)


PLANS = {
    "routerdc7": Plan(layers=4, epochs=4),
    "zeroeval_math": Plan(specialists=("gemma-2-2b-it", "gemini-1.5-pro"), peek=400, tokens=160),
    "openllm_pool": Plan(train=4000),
    "rag_mirage": Plan(train=4000, test=1500, peek=400, tokens=160),
}


def chosen(table: Table, plan: Plan) -> tuple[Table, Table]:
    """Train and test of a plan: the first prompts of a fixed shuffle of each split."""
    if plan.specialists is not None:
        table = table.only(plan.specialists)
    rng = np.random.default_rng(0)
    parts = []
    for split, most in (("train", plan.train), ("test", plan.test)):
        part = table.in_split(split)
        rows = np.zeros(len(part), dtype=np.bool_)
        rows[rng.permutation(len(part))[:most]] = True
        parts.append(part.rows(rows))
    return parts[0], parts[1]


def fitted(name: str, plan: Plan, train: Table, test: Table, work: Path) -> tuple[Any, float, dict[str, Any]]:
    """Predictions of stack, transformers and blend on the test prompts, one above the other.

    The CPU-seconds are those of all runs that had a part in it, also of runs that were broken off.
    """
    clock = work / "cpu-seconds"
    begun = time.process_time() - (float(clock.read_text()) if clock.exists() else 0.0)
    seen: dict[str, int] = {}

    def say(what: str, share: float) -> None:
        percent = int(100 * share)
        if seen.get("share") != percent:
            seen["share"] = percent
            replace_text(clock, f"{time.process_time() - begun:.0f}\n")
            print(f"{name} {what} {percent} %, {time.process_time() - begun:.0f} CPU-s", flush=True)

    blend = plan.recipe().fit(train, say, work)
    parts = [part.predict(test.prompts, test.contexts) for part in (*blend.parts, blend)]
    clock.unlink(missing_ok=True)
    told = {"weights": blend.weights.tolist()}
    return np.stack(parts), time.process_time() - begun, told


def measure(name: str, plan: Plan, cache: Path, *, fit: bool = True) -> dict[str, Any] | None:
    """Errors on one folder; None if it is not in the cache and nothing is to be fitted."""
    train, test = chosen(read(name)[0], plan)
    work = cache / name / "blend-parts"
    made = lambda: fitted(name, plan, train, test, work)  # noqa: E731
    cell = kept(cache / name, "blend", asdict(plan), made if fit else None)
    if cell is None:
        return None
    near = Neighbours.fit(train.prompts, train.reward, train.specialists, k=3)
    ways = {"kNN-3": near.predict(test.prompts)}
    ways |= dict(zip(("stack", "transformers", "blend"), cell.predicted, strict=True))
    errors = {way: per_prompt(predicted, test.reward) for way, predicted in ways.items()}
    rows = {
        way: {
            "mse": float(np.nanmean(error)),
            "minus_knn3": paired(error, errors["kNN-3"]),
            "minus_stack": paired(error, errors["stack"]),
        }
        for way, error in errors.items()
    }
    counts = {"train": len(train), "test": len(test), "specialists": len(test.specialists)}
    return {
        "folder": name,
        **counts,
        "plan": asdict(plan),
        "seconds": cell.seconds,
        **cell.told,
        "rows": rows,
    }


def table(found: list[dict[str, Any]], asked: list[str]) -> str:
    """The measured folders as a Markdown table, with a line on those of `asked` that are not measured."""
    head = (
        "| folder, train x specialists | kNN-3 | stack | transformers | blend | blend against kNN-3 | "
        "blend - kNN-3 (se) | blend - stack (se) | weights | CPU-s |\n" + "|---" * 10 + "|\n"
    )
    lines = []
    for one in found:
        rows = one["rows"]
        three, stack = rows["blend"]["minus_knn3"], rows["blend"]["minus_stack"]
        reads = f", reads {one['plan']['peek']} characters" if one["plan"]["peek"] else ""
        lines.append(
            f"| {one['folder']}, {one['train']:,} x {one['specialists']}{reads} | "
            + " | ".join(f"{rows[way]['mse']:.4f}" for way in ("kNN-3", "stack", "transformers", "blend"))
            + f" | {100 * (rows['blend']['mse'] / rows['kNN-3']['mse'] - 1):+.1f} % "
            f"| {three['gap']:+.4f} ({three['error']:.4f}) | {stack['gap']:+.4f} ({stack['error']:.4f}) "
            f"| {', '.join(f'{w:.2f}' for w in one['weights'])} | {one['seconds']:.0f} |"
        )
    missing = [name for name in asked if name not in {one["folder"] for one in found}]
    said = f"\nNot measured yet: {', '.join(missing)}.\n" if missing else ""
    return head + "\n".join(lines) + "\n" + said


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("folders", nargs="*", default=list(PLANS))
    options.add_argument("--cache", type=Path, default=CACHE)
    options.add_argument("--kept", action="store_true", help="fit nothing: only what is in the cache")
    options.add_argument("--page", type=Path, help="write the table of this page, usually decision 0330")
    told = options.parse_args()
    found = []
    for name in told.folders:
        one = measure(name, PLANS[name], told.cache, fit=not told.kept)
        if one is not None:
            write_json(told.cache / name / "blend.json", one)
            found.append(one)
    print(table(found, told.folders))
    if told.page is not None:
        put(table(found, told.folders), told.page)


if __name__ == "__main__":
    main()
