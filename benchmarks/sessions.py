"""Conversations of many turns: priced changes of the specialist beside never, always and a threshold.

    OMP_NUM_THREADS=1 nice -n 10 python -m benchmarks.sessions [SET ...] [--seeds 8] [--page docs/agents.md]

Scores and fees of each turn are recorded ones (`SETS`); what surrounds them is drawn: how many turns, how
many tokens come before and with each, how many seconds lie between them (`TRAFFIC`), and what each provider
takes for cached input (`CACHES`). Per seed a router is fitted on fresh prompts and decides sessions of
prompts that it never saw, through `in_conversation`, as the gateway does. A session is charged by `Tariff`,
with a cache at each provider, also at those that a way has left.

    priced      the product: the worth of each specialist is lowered by what the conversation costs there
    never       the specialist of the first turn answers all turns
    always      each turn is decided as if it were the first
    threshold   leave only if another specialist is worth more by so much; the best of `THRESHOLDS` for each
                kind of traffic on the development seeds

`--develop` decides the development seeds, and prints the net reward for each number of turns that are
expected to follow (`FOLLOWING`). Without it fresh seeds are decided with the number in the product.
Finished seeds are kept in CACHE/sessions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tools.pages import put

from benchmarks.folders import DATA
from benchmarks.kept import CACHE, kept
from benchmarks.learning import split_of
from pandora_router.data import Table
from pandora_router.data.fees import FromColumn
from pandora_router.data.importers.folder import read_folder
from pandora_router.evaluate.statistics import Split, compare
from pandora_router.prices import Tariff
from pandora_router.report.tables import grid
from pandora_router.router import Router
from pandora_router.router.conversation import FOLLOWING, in_conversation
from pandora_router.router.revalue import weighed
from pandora_router.search import Never
from pandora_router.store.rows import Session
from pandora_router.wires.usage import Usage

SETS: dict[str, dict[str, tuple[float, str]]] = {
    "routerbench_part": {
        "WizardLM/WizardLM-13B-V1.2": (0.3, ""),
        "claude-instant-v1": (0.8, "written"),
        "claude-v1": (8.0, "written"),
        "claude-v2": (8.0, "written"),
        "gpt-3.5-turbo-1106": (1.0, "half"),
        "gpt-4-1106-preview": (10.0, "half"),
        "meta/code-llama-instruct-34b-chat": (0.776, ""),
        "meta/llama-2-70b-chat": (0.9, ""),
        "mistralai/mistral-7b-chat": (0.2, ""),
        "mistralai/mixtral-8x7b-chat": (0.6, ""),
        "zero-one-ai/Yi-34B-Chat": (0.8, ""),
    },
    "paretobandit": {
        "llama-3.1-8b-instruct": (0.02, ""),
        "mistral-large-2512": (0.5, ""),
        "gemini-2.5-pro": (1.25, "quarter"),
    },
}
"""Assumed prices of input (dollars per million tokens), and how cached input is sold."""
SOLD = {"": {}, "quarter": {"cached_in": 0.25}, "half": {"cached_in": 0.5}} | {
    "written": {"cached_in": 0.1, "cached_write": 1.25},
    "tenth": {"cached_in": 0.1},
}
"""Prices of cached and of written input as shares of the price of input."""
CACHES = {"as sold": None, "a tenth": "tenth"}
"""Each provider as in `SETS`, or all at a tenth of their price."""


@dataclass(frozen=True)
class Traffic:
    """One kind of conversation.

    turns: their mean number. before: tokens before the first one. brings, answer: tokens that each turn
    brings, and that it is answered with. worth: dollars of a right answer.
    """

    turns: float
    before: float
    brings: float
    answer: float
    worth: float


TRAFFIC = {
    "chat": Traffic(2.0, 0.0, 69.5, 214.5, 0.01),
    "documents": Traffic(5.0, 12_035.0, 600.0, 343.0, 0.05),
    "agents": Traffic(10.0, 8_596.0, 2_000.0, 182.0, 0.2),
}
"""All of it is assumed: that lengths are means of LMSYS-Chat-1M and of Mooncake's traces is not confirmed."""
GAP, SPREAD, SAME = 60.0, 1.5, 0.5
"""Median seconds between turns and their log-normal spread; the chance that a turn keeps the task."""
FOLLOWINGS = (0.0, 1.0, 2.0, 3.0, 5.0, 8.0)
THRESHOLDS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
DEVELOPMENT, FRESH = range(4), 100
KNOWN, SESSIONS, VERSION = 800, 60, 1
WAYS = ("priced", "never", "always", "threshold")


@dataclass(frozen=True)
class Conversation:
    """Prompts of the turns (numbers in the table), when each comes, and the tokens that each adds."""

    prompts: tuple[int, ...]
    at: tuple[float, ...]
    before: int
    brings: int
    answer: int


def conversations(test: Table, kind: Traffic, rng: np.random.Generator) -> list[Conversation]:
    """`SESSIONS` conversations over the prompts of `test`."""
    tasks = np.array(test.tasks)
    made = []
    for _ in range(SESSIONS):
        prompts = [int(rng.integers(len(test)))]
        for _ in range(int(rng.geometric(1.0 / kind.turns)) - 1):
            alike = np.flatnonzero(tasks == tasks[prompts[-1]])
            same = rng.random() < SAME
            prompts.append(int(rng.choice(alike)) if same else int(rng.integers(len(test))))
        gaps = rng.lognormal(np.log(GAP), SPREAD, len(prompts))
        size = rng.lognormal(-0.5, 1.0)  # mean 1
        lengths = (round(kind.before * size), round(kind.brings * size), round(kind.answer))
        made.append(Conversation(tuple(prompts), tuple(np.cumsum(gaps).tolist()), *lengths))
    return made


Choose = Callable[[int, Session | None, float], str]


def held_conversation(
    talk: Conversation, test: Table, tariffs: Mapping[str, Tariff], choose: Choose
) -> tuple[float, float, int]:
    """Mean score, mean dollars and number of changes when `choose` names the specialist of each turn."""
    tokens, caches, known = talk.before, dict[str, tuple[float, int]](), None
    score = cost = 0.0
    changes = 0
    for prompt, now in zip(talk.prompts, talk.at, strict=True):
        name = choose(prompt, known, now)
        tariff, column = tariffs[name], test.specialists.index(name)
        at, held = caches.get(name, (-np.inf, 0))
        cached = held if now - at < tariff.cached_seconds else 0
        read = tokens + talk.brings
        score += float(test.score[prompt, column])
        cost += tariff.reading(read, cached) + float(test.fee[prompt, column])
        write = tariff.cached_write is not None
        anew = read - cached
        usage = Usage(0 if write else anew, cached, anew if write else 0, talk.answer)
        changes += known is not None and known.specialist != name
        tokens = read + talk.answer
        caches[name] = now, tariff.holds(usage)
        known = Session(name, now, tokens, tariff.holds(usage))
    turns = len(talk.prompts)
    return score / turns, cost / turns, changes


def ways(
    router: Router, test: Table, tariffs: Mapping[str, Tariff], followings: Sequence[float]
) -> list[Choose]:
    """Priced with each of `followings`, never, always, and each of `THRESHOLDS`."""
    alone: dict[int, dict[str, float]] = {}

    def worth(prompt: int) -> dict[str, float]:
        if prompt not in alone:
            alone[prompt] = dict(router.route(test.prompts[prompt]).worth)
        return alone[prompt]

    def best(prompt: int) -> str:
        return max(worth(prompt), key=worth(prompt).__getitem__)

    def priced(following: float) -> Choose:
        def choose(prompt: int, known: Session | None, now: float) -> str:
            if known is None:
                return best(prompt)
            moved, _ = in_conversation(router, tariffs, known, now, following)
            return moved.route(test.prompts[prompt]).specialist

        return choose

    def above(threshold: float) -> Choose:
        def choose(prompt: int, known: Session | None, now: float) -> str:
            stays = known is not None and (
                worth(prompt)[best(prompt)] - worth(prompt)[known.specialist] <= threshold
            )
            return known.specialist if known is not None and stays else best(prompt)

        return choose

    return [*map(priced, followings), above(np.inf), above(-1.0), *map(above, THRESHOLDS)]


def tariffs_of(name: str, caches: str) -> dict[str, Tariff]:
    """The tariffs of a set; output is in the recorded fees."""
    tariffs = {}
    for specialist, (price, sells) in SETS[name].items():
        shares = SOLD[CACHES[caches] or sells]
        sold = {key: price * share for key, share in shares.items()}
        cached, write = sold.get("cached_in"), sold.get("cached_write")
        tariffs[specialist] = Tariff(price, 0.0, cached_in=cached, cached_write=write)
    return tariffs


def seed_cell(name: str, seed: int, followings: Sequence[float]) -> tuple[Any, float, dict[str, Any]]:
    """Score, dollars and changes (kinds of traffic x caches, sessions, ways, 3) of one seed."""
    begun = time.process_time()
    folder = read_folder(DATA / name, fees=FromColumn("cost_usd"))
    table = replace(folder.only(tuple(SETS[name])), contexts=None)
    table = split_of(table.rows(~table.missing.any(axis=1)), KNOWN, seed)
    fitted = Router.fit(table, policy=Never(), remember_test=False)
    test, rng = table.in_split("test"), np.random.default_rng([seed, 28])
    cells = []
    for kind in TRAFFIC.values():
        router = weighed(fitted, 1.0 / kind.worth)
        talks = conversations(test, kind, rng)
        for caches in CACHES:
            tariffs = tariffs_of(name, caches)
            chosen = ways(router, test, tariffs, followings)
            cells.append([[held_conversation(talk, test, tariffs, way) for way in chosen] for talk in talks])
    return np.array(cells), time.process_time() - begun, {}


def measured(name: str, seed: int, followings: Sequence[float], cache: Path) -> np.ndarray:
    """`seed_cell`, from the disk or now."""
    settings = {
        "followings": list(followings),
        "known": KNOWN,
        "sessions": SESSIONS,
        "version": VERSION,
        "traffic": repr((TRAFFIC, GAP, SPREAD, SAME, SETS[name], SOLD, CACHES, THRESHOLDS)),
    }
    print(f"{name}, seed {seed}", flush=True)
    label = f"{'develop' if len(followings) > 1 else 'fresh'} {seed}"
    cell = kept(cache / "sessions" / name, label, settings, lambda: seed_cell(name, seed, followings))
    assert cell is not None
    return cell.predicted


def net(cells: np.ndarray) -> np.ndarray:
    """Net reward per turn, in scores: mean score - dollars / worth (traffic x caches, sessions, ways)."""
    worth = np.repeat([kind.worth for kind in TRAFFIC.values()], len(CACHES))
    values: np.ndarray = cells[..., 0] - cells[..., 1] / worth[:, None, None]
    return values


def developed(names: Sequence[str], cache: Path) -> str:
    """Net reward of priced switching on the development seeds for each number of turns to follow."""
    rows = []
    total = np.zeros(len(FOLLOWINGS))
    for name in names:
        runs = np.stack([net(measured(name, seed, FOLLOWINGS, cache)) for seed in DEVELOPMENT])
        mean = runs[..., : len(FOLLOWINGS)].mean(axis=(0, 2))
        total += mean.mean(axis=0)
        kinds = [f"{kind}, {caches}" for kind in TRAFFIC for caches in CACHES]
        rows += [[name, kind, *(f"{v:.4f}" for v in line)] for kind, line in zip(kinds, mean, strict=True)]
    rows.append(["mean", "", *(f"{v / len(names):.4f}" for v in total)])
    return grid(["set", "conversations, caches", *(f"{n:g} turns" for n in FOLLOWINGS)], rows)


def proven(names: Sequence[str], seeds: int, cache: Path) -> tuple[str, str]:
    """The table of the fresh seeds, and the verdict."""
    rows, gaps = [], []
    for name in names:
        tuning = np.stack([net(measured(name, seed, FOLLOWINGS, cache)) for seed in DEVELOPMENT])
        best = tuning[..., -len(THRESHOLDS) :].mean(axis=(0, 2)).argmax(axis=-1)
        runs = np.stack([measured(name, FRESH + i, (FOLLOWING,), cache) for i in range(seeds)])
        for k, (kind, caches) in enumerate((kind, caches) for kind in TRAFFIC for caches in CACHES):
            at = [0, 1, 2, 3 + int(best[k])]
            reward = np.stack([net(run)[k][:, at] for run in runs])
            told = runs[:, k][:, :, at].mean(axis=(0, 1))
            numbers = np.arange(reward.shape[1])
            splits = [
                Split(1e3 * (one[:, :1] - one[:, 1:]), numbers + i * len(numbers), numbers)
                for i, one in enumerate(reward)
            ]
            found = compare(splits)
            gaps.append((found.mean, found.doubt))
            told_gaps = [f"{m:+.1f} ({e:.1f})" for m, e in zip(found.mean, found.doubt, strict=True)]
            costs = " / ".join(f"{1e3 * dollars:.3g}" for dollars in told[:, 1])
            scores = " / ".join(f"{score:.3f}" for score in told[:, 0])
            limit = f"{THRESHOLDS[int(best[k])]:g}"
            rows.append([name, f"{kind}, {caches}", scores, costs, f"{told[0, 2]:.1f}", *told_gaps, limit])
    head = ["set", "conversations, caches", f"score: {' / '.join(WAYS)}", "dollars per 1,000 turns, the same"]
    head += ["changes, priced", *(f"priced - {way}, 1e-3 (se)" for way in WAYS[1:]), "threshold"]
    return grid(head, rows), verdict(gaps)


def verdict(gaps: Sequence[tuple[np.ndarray, np.ndarray]]) -> str:
    """Where priced switching is ahead of and behind each other way by two standard errors."""
    said = []
    for column, way in enumerate(WAYS[1:]):
        signs = [gap[column] / max(error[column], 1e-12) for gap, error in gaps]
        ahead, behind = sum(z > 2.0 for z in signs), sum(z < -2.0 for z in signs)
        said.append(f"{way}: ahead in {ahead}, behind in {behind}")
    return f"By two standard errors, of {len(gaps)} rows, priced switching beside " + "; ".join(said) + "."


NOTE = """Written by `python -m benchmarks.sessions`: {seeds} fresh seeds x {sessions} conversations a row,
a router fitted on {known} prompts per seed, {following:g} turns expected to follow. Net reward is the score
minus dollars by the worth of a right answer; differences per conversation and turn in thousandths, with the
larger of the standard errors over conversations and over seeds. The threshold is the best on development
seeds, for each row.
"""


def main() -> None:
    """Print the table, and write it to a page if one is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--develop", action="store_true")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    if asked.develop:
        print(developed(asked.sets, asked.cache))
        return
    table, said = proven(asked.sets, asked.seeds, asked.cache)
    note = NOTE.format(seeds=asked.seeds, sessions=SESSIONS, known=KNOWN, following=FOLLOWING)
    text = f"{note}\n{table}\n\n{said}"
    print(text)
    if asked.page is not None:
        put(text, asked.page, "sessions")


if __name__ == "__main__":
    main()
