"""The fine-tuned transformer beside the boosted g, with and without contexts, on the same prompts.

    OMP_NUM_THREADS=1 python -m benchmarks.transformer [folder ...] [--cache build/measured]

Everything in one row is fitted on the same training prompts and specialists and measured on the same test
prompts (`PLANS`: small enough for one core; two specialists of lower and higher training reward where there
are 29). Forms: "all" (prompt, all specialists at once), "named" (prompt, specialist in the text),
"context" (named, with what the specialist has begun to say, or its passages). Two of MiniLM's six layers
learn, two epochs. "with a context" counts only test cells that have one. Every model is kept in the cache
as soon as it is done, so a run that is broken off goes on; `python -m benchmarks.estimators --page` puts
the result on the page.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.folders import Folder, load
from benchmarks.kept import CACHE, Made, kept, paired, per_prompt, write_json
from pandora_router.estimators.stack.boosted import Boosted
from pandora_router.estimators.stack.peek import Peek
from pandora_router.estimators.transformer.served import Text

FormName = Literal["all", "named", "context"]


@dataclass(frozen=True)
class Plan:
    """How much of a folder is trained on and tested, and in which forms."""

    train: int
    test: int
    specialists: int | None = None
    forms: tuple[FormName, ...] = ("all", "context")
    tokens: int = 192
    characters: int = 400
    layers: int = 2
    epochs: int = 2
    rate: float = 1e-4

    def scaled(self, share: float) -> Plan:
        """The same plan on a share of the prompts."""
        return replace(self, train=round(share * self.train), test=round(share * self.test))


PLANS = {
    "zeroeval_math": Plan(400, 300, 2),
    "rag_mirage": Plan(400, 300),
    "mmlupro_cot": Plan(400, 300, 2),
    "rag_adarague": Plan(400, 300, None, characters=1000),
}


def reduced(folder: Folder, plan: Plan) -> tuple[Folder, Folder]:
    """Train and test of a plan: the first prompts of a fixed shuffle, specialists spread over rewards."""
    rng = np.random.default_rng(0)
    train, test = (rng.permutation(folder.rows(split)) for split in ("train", "test"))
    if plan.specialists is not None:
        order = np.argsort(np.nanmean(folder.reward[np.sort(train)], axis=0), kind="stable")
        spread = np.linspace(0, len(order) - 1, plan.specialists + 2)[1:-1].round().astype(int)
        folder = folder.columns(np.sort(order[spread]))
    return folder.take(np.sort(train[: plan.train])), folder.take(np.sort(test[: plan.test]))


def boosted(train: Folder, test: Folder, peek: Peek | None) -> Made:
    start = time.process_time()
    seen = (train.contexts, test.contexts) if peek else (None, None)
    model = Boosted.fit(train.prompts, train.reward, train.specialists, contexts=seen[0], peek=peek)
    return model.predict(test.prompts, seen[1]), time.process_time() - start, {}


def transformer(train: Folder, test: Folder, plan: Plan, form: FormName, work: Path) -> Made:
    from pandora_router.estimators.transformer.trainer import Tuning, fine_tune

    kind: Literal["all", "named"] = "all" if form == "all" else "named"
    seen = (train.contexts, test.contexts) if form == "context" else (None, None)
    start = time.process_time()
    model = fine_tune(
        train.prompts,
        train.reward,
        train.specialists,
        contexts=seen[0],
        form=kind,
        text=Text(kind, plan.tokens, plan.characters),
        tuning=Tuning(layers=plan.layers, epochs=plan.epochs, rate=plan.rate),
        progress=lambda what, done: print(f"\r{train.name} {form} {what} {done:4.0%}", end="", flush=True),
        work=work,
    )
    fitted = time.process_time() - start
    predicted = model.predict(test.prompts, seen[1])
    return predicted, fitted, {"predict_seconds": time.process_time() - start - fitted}


def measure(name: str, plan: Plan, cache: Path, *, fit: bool = True) -> dict[str, Any]:
    """Errors of every form on one folder; what was made before is taken from the cache, all without `fit`."""
    train, test = reduced(load(name), plan)
    makers: dict[str, Callable[[], Made]] = {
        "g": lambda: boosted(train, test, None),
        "g + own": lambda: boosted(train, test, Peek(plan.characters)),
        **{
            f"transformer {form}": lambda f=form: transformer(train, test, plan, f, cache / name / "epochs")
            for form in plan.forms
        },
    }
    settings = {key: value for key, value in asdict(plan).items() if key != "forms"}
    found = {
        label: kept(cache / name / "transformer", label, settings, make if fit else None)
        for label, make in makers.items()
    }
    cells = {label: cell for label, cell in found.items() if cell is not None}
    seen = np.asarray([[text is not None for text in row] for row in test.contexts])
    wholes = {label: per_prompt(cell.predicted, test.reward) for label, cell in cells.items()}
    shown = np.where(seen, test.reward, np.nan)
    parts = {label: per_prompt(cell.predicted, shown) for label, cell in cells.items()}
    rows = {
        label: {
            "mse": float(np.nanmean(wholes[label])),
            "minus_g": paired(wholes[label], wholes["g"]),
            "minus_prompt_only": paired(wholes[label], wholes["transformer all"]),
            "seen_mse": float(np.nanmean(parts[label])),
            "seen_minus_g": paired(parts[label], parts["g"]),
            "seen_minus_prompt_only": paired(parts[label], parts["transformer all"]),
            "fit_seconds": cells[label].seconds,
        }
        for label in cells
    }
    return {
        "folder": name,
        "plan": asdict(plan),
        "train_prompts": len(train.prompts),
        "test_prompts": len(test.prompts),
        "specialists": list(test.specialists),
        "share_seen": float(seen.mean()),
        "constant_mse": float(np.nanmean(per_prompt(np.nanmean(train.reward, axis=0), test.reward))),
        "rows": rows,
    }


def show(found: dict[str, Any]) -> None:
    print(
        f"\n{found['folder']}: {found['train_prompts']} train, {found['test_prompts']} test prompts, "
        f"{len(found['specialists'])} specialists; training mean {found['constant_mse']:.4f}"
    )
    for label, row in found["rows"].items():
        gap, seen = row["minus_g"], row["seen_minus_prompt_only"]
        print(
            f"  {label:22s} {row['mse']:.4f}  minus g {gap['gap']:+.4f} ({gap['error']:.4f})  with a context "
            f"{row['seen_mse']:.4f}, minus transformer all {seen['gap']:+.4f} ({seen['error']:.4f})"
            f"  {row['fit_seconds']:.0f} CPU-s",
            flush=True,
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("folders", nargs="*", default=list(PLANS))
    options.add_argument("--cache", type=Path, default=CACHE)
    options.add_argument("--kept", action="store_true", help="fit nothing: only what is in the cache")
    options.add_argument("--scale", type=float, default=1.0, help="times the prompts of the plan")
    chosen = options.parse_args()
    for name in chosen.folders:
        found = measure(name, PLANS[name].scaled(chosen.scale), chosen.cache, fit=not chosen.kept)
        write_json(chosen.cache / name / "transformer.json", found)
        show(found)


if __name__ == "__main__":
    main()
