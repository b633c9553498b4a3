"""What a fitted router earns: one sentence and one small table, and the details for --verbose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pandora_router.calibrate.ways import ALWAYS, BEST_SINGLE, CHEAPEST, NEVER, ORACLE, ROUTER
from pandora_router.cli.console import Screen, table
from pandora_router.router.curve import Curve, Point, hull
from pandora_router.text import money

MANY = 6
"""Specialists above which only those on the frontier are shown."""
PROMPTS = 1000
"""Number of prompts for which amounts of money are printed."""
SHOWN = {
    ROUTER: "the router",
    NEVER: "buying no estimates",
    ALWAYS: "buying all estimates",
    BEST_SINGLE: "always {single}",
    CHEAPEST: "always {cheapest}",
    ORACLE: "best in hindsight",
}
"""The ways of routing in the small table, and their names there."""


def headline(
    screen: Screen, facts: Mapping[str, Any], weight: float, sign: str, needs: Sequence[str]
) -> None:
    """Print one sentence and one table in accuracy and money, and what the router needs for that.

    facts: the record of a fit. weight: `fee_weight`, which converts money to reward. sign: the currency.
    needs: specialists whose beginnings the costly estimate reads.
    """
    ways = facts["report"].get("routing", {}).get("ways")
    if not ways:
        because = facts["report"].get("because", "the table has no test prompts that g was asked about")
        screen.say(
            f"The router is fitted, but what it earns cannot be measured: {because!s}. Ways of routing are "
            "compared on test prompts that every specialist answered (pandora collect gets such answers)."
        )
        return
    names = {way: text.format(**facts["report"]["standing"]) for way, text in SHOWN.items()}
    if needs:
        names |= {ROUTER: "the router, shown beginnings", NEVER: "the router without beginnings"}
    single = f"{names[BEST_SINGLE]}: {_short(ways[BEST_SINGLE], weight, sign)}"
    screen.say(f"{_short(ways[ROUTER], weight, sign)}; {single}; {_buying(ways, weight, sign)}.")
    shown = _distinct(names, ways)
    singles = _singles(facts["report"]["routing"].get("curve"))
    if singles:
        shown = [way for way in shown if way not in (BEST_SINGLE, CHEAPEST)]
    rows = [_row(names[way], ways[way], weight, sign) for way in shown]
    rows[-1:-1] = [_single_row(f"always {name}", point, weight, sign) for name, point in singles.items()]
    if mix := _mix(facts["report"]["routing"].get("curve"), ways[ROUTER], weight, sign):
        rows[-1:-1] = [mix]
    columns = (
        "way of routing",
        "right",
        "(se)",
        f"per {PROMPTS:,}",
        "(se)",
        "bought",
        f"net per {PROMPTS:,}",
    )
    prompts, test = facts["report"]["routing"]["prompts"], facts["prompts"]["test"]
    which = (
        f"{prompts:,} test prompts"
        if prompts == test
        else f"the {prompts:,} of {test:,} test prompts with every score"
    )
    title = f"On {which}; money per {PROMPTS:,} prompts, estimates included"
    screen.show(table(title, columns, rows))
    if guard := facts["evidence"].get("guard"):
        screen.say(_guarded(guard, weight, sign))
        if "news" in guard and ways[ROUTER]["inspections"] == 0:
            screen.say(_unbought(guard["news"]))
    opened = facts["report"].get("opened", {})
    if "lead" in opened or (opened and needs):
        screen.say(_opened(opened, weight, sign))
    looks = facts["settings"].get("inspection", {}).get("looks", {})
    if needs and looks:
        told = ", ".join(
            f"{money(fare['money'], sign)} at {name} (a whole answer {money(fare['whole'], sign)})"
            for name, fare in looks.items()
        )
        screen.say(f"Expected price of a look: {told}.")
    if needs:
        screen.say(
            f"At routing time the router looks at what {', '.join(needs)} have begun to say: give it "
            "their beginnings (--context, --contexts, a column `contexts`), or specialists it can begin. "
            f"Without them it buys no estimates: {_short(ways[NEVER], weight, sign)}."
        )


def _distinct(names: Mapping[str, str], ways: Mapping[str, Any]) -> list[str]:
    """The ways of routing to show, without those that are identical to another one.

    For example, the cheapest specialist may be the best single one, and a router that buys nothing is the
    same as never inspecting.
    """
    shown = [way for way in names if way in ways]
    if names[CHEAPEST] == names[BEST_SINGLE] and CHEAPEST in shown:
        shown.remove(CHEAPEST)
    if ways[ROUTER] == ways[NEVER]:
        shown.remove(NEVER)
    return shown


def _guarded(guard: Mapping[str, Any], weight: float, sign: str) -> str:
    """Sentence on what buying gained or lost in cross-validation, and whether it is switched off."""
    gain = guard["gain"]
    if not guard["on"]:
        verdict = "it is off, and nothing is bought."
    elif gain >= 0.0:
        verdict = "it is kept."
    else:
        verdict = "it is kept, because the loss is within the noise."
    return (
        f"Cross-validated on {guard['prompts']:,} prompts, buying estimates where they seem worth it "
        f"{_earned(gain, guard['error'], weight, sign)} against never buying: {verdict}"
    )


def _unbought(news: Mapping[str, Any]) -> str:
    """Sentence on why nothing is bought: how little of what costly estimates say comes true."""
    few = news["contenders"] < 3
    among = "the specialists" if few else f"the {news['contenders']} best specialists"
    over_all = "" if few else f"; over all specialists {news['slope']:.2f} ({news['error']:.2f})"
    return (
        "Nothing is bought because costly estimates say too little for their price: where those of "
        f"{among} differ by 1 more than cheap estimates tell, the worth of their answers differs by "
        f"{news['best']:.2f} (standard error {news['best_error']:.2f}){over_all}."
    )


def _opened(opened: Mapping[str, Any], weight: float, sign: str) -> str:
    """Sentence on what reading everything opened gained or lost in cross-validation, and which is used."""
    if "lead" not in opened:
        return f"Each specialist is estimated from its own beginning alone: {opened['because']}"
    lead = opened["lead"]
    if not opened["chosen"]:
        verdict = "it is not used" + (
            "." if opened["over_never"]["on"] else ", because it loses to never buying."
        )
    elif lead >= 0.0:
        verdict = "it is used."
    else:
        verdict = "it is used, because the loss is within the noise."
    return (
        f"Cross-validated on {opened['prompts']:,} prompts, reading all beginnings seen so far together "
        f"{_earned(lead, opened['error'], weight, sign)} against reading each specialist's own: {verdict}"
    )


def _earned(gain: float, error: float, weight: float, sign: str) -> str:
    """Phrase: "earns" or "loses" an amount per prompt; in money if `weight` converts it."""
    verb = "earns" if gain >= 0.0 else "loses"
    if weight <= 0.0:
        return f"{verb} {abs(gain):.4f} of reward per prompt (standard error {error:.4f})"
    per = PROMPTS / weight
    doubt = money(per * error, sign)
    return f"{verb} {money(per * abs(gain), sign)} per {PROMPTS:,} prompts (standard error {doubt})"


def _money(way: Mapping[str, Any], key: str, weight: float) -> float:
    """Money per prompt: fees (weighted in a report) and inspections."""
    return float(way[key]) / (weight if weight > 0 else 1.0)


def _short(way: Mapping[str, Any], weight: float, sign: str) -> str:
    cost = money(PROMPTS * _money(way, "cost", weight), sign)
    return f"{way['accuracy']:.3f} right at {cost} per {PROMPTS:,} prompts"


def _row(name: str, way: Mapping[str, Any], weight: float, sign: str) -> tuple[str, ...]:
    cost = _money(way, "cost", weight)
    return (
        name,
        f"{way['accuracy']:.3f}",
        f"{way['accuracy_error']:.3f}",
        money(PROMPTS * cost, sign),
        money(PROMPTS * _money(way, "cost_error", weight), sign),
        f"{way['inspections']:.2f}",
        _net(way["accuracy"], cost, weight, sign),
    )


def _net(score: float, cost: float, weight: float, sign: str) -> str:
    """Net value of many prompts: score x worth of a right answer - money; empty if fees have no weight."""
    return money(PROMPTS * (score / weight - cost), sign) if weight > 0.0 else ""


def _single_row(name: str, point: Point, weight: float, sign: str) -> tuple[str, ...]:
    errors = f"{point.score_error:.3f}", money(PROMPTS * point.money_error, sign)
    cost = money(PROMPTS * point.money, sign)
    return (
        name,
        f"{point.score:.3f}",
        errors[0],
        cost,
        errors[1],
        "0.00",
        _net(point.score, point.money, weight, sign),
    )


def _singles(curve: Mapping[str, Any] | None) -> dict[str, Point]:
    """Every single specialist; with more than `MANY` those on the frontier of cost and score."""
    if curve is None:
        return {}
    singles = Curve.from_dict(curve).singles
    if len(singles) <= MANY:
        return dict(singles)
    corners = hull([(point.money, point.score) for point in singles.values()])
    return {name: point for name, point in singles.items() if (point.money, point.score) in corners}


def _mix(
    curve: Mapping[str, Any] | None, router: Mapping[str, Any], weight: float, sign: str
) -> tuple[str, ...] | None:
    """The best random mix of two specialists at the cost of the router."""
    if curve is None:
        return None
    cost = _money(router, "cost", weight)
    score = Curve.from_dict(curve).mix(cost)
    price = money(PROMPTS * cost, sign)
    return "mix of two at that cost", f"{score:.3f}", "", price, "", "0.00", _net(score, cost, weight, sign)


def _buying(ways: Mapping[str, Any], weight: float, sign: str) -> str:
    """Phrase on whether buying estimates pays, judged by the standard error of the paired difference."""
    router, never = ways[ROUTER], ways[NEVER]
    if router["inspections"] == 0:
        return "the router buys no estimates for these prompts"
    per = PROMPTS / (weight if weight > 0 else 1.0)
    gain, error = per * (router["net_reward"] - never["net_reward"]), per * never["behind_error"]
    if abs(gain) <= 2 * error:
        amount = f"{money(gain, sign)} per {PROMPTS:,} prompts, standard error {money(error, sign)}"
        return f"buying estimates makes no clear difference ({amount})"
    amount = f"{money(abs(gain), sign)} per {PROMPTS:,} prompts (standard error {money(error, sign)})"
    return f"buying estimates {'gains' if gain > 0 else 'loses'} {amount}"


def details(screen: Screen, facts: Mapping[str, Any]) -> None:
    """Print errors, coverage, evidence for the policy, parts of the signal model, all ways of routing."""
    report, evidence, counts = facts["report"], facts["evidence"], facts["prompts"]
    screen.say(f"\ntrain {counts['train']:,}, calibration {counts['calibration']:,}, test {counts['test']:,}")
    if "mse" in report:
        cells = ["-" if error is None else f"{error:.4f}" for error in report["mse"].values()]
        title = f"Mean squared error against what answers were worth, on {report['on']}"
        screen.show(table(title, list(report["mse"]), [cells], words=0))
        screen.say(
            f"coverage of g: {report['coverage_1']:.1%} within one, {report['coverage_2']:.1%} within two "
            "standard deviations (normal: 68.3 %, 95.4 %); "
            f"residual correlation {report['residual_correlation'] or 0:.2f}"
        )
    columns: Sequence[str]
    if evidence.get("evidence"):
        numbers = ("loss", "standard_error", "behind", "behind_error", "inspections")
        rows = [[row["name"], *(f"{row[key]:z.4f}" for key in numbers)] for row in evidence["evidence"]]
        columns = ("policy", "loss", "(se)", "behind the best", "(se)", "inspections")
        screen.show(table("Regret + inspection cost, cross-validated on calibration", columns, rows))
    if report.get("parts"):
        _parts(screen, report["parts"])
    if report.get("routing", {}).get("ways"):
        keys = ("net_reward", "standard_error", "accuracy", "fee", "spent", "inspections")
        ways = report["routing"]["ways"].items()
        rows = [[name, *(f"{way[key]:z.4f}" for key in keys)] for name, way in ways]
        columns = ("way", "net", "(se)", "right", "fee", "spent", "inspections")
        screen.show(table("Per test prompt, in right answers", columns, rows))
    screen.say(f"policy: {evidence['policy']}; default {facts['default']}")


def _parts(screen: Screen, parts: Sequence[Mapping[str, Any]]) -> None:
    rows = []
    for part in parts:
        keys = () if part["off"] is None else ("worth", "standard_error")
        earns = [f"{part[key]:z.4f}" for key in keys] or ["-", "-"]
        shares = (f"{part[key]:.1%}" for key in ("coverage_1", "coverage_2", "central_90"))
        rows.append((part["off"] or "nothing", f"{part['loss']:z.4f}", *earns, f"{part['nll']:.3f}", *shares))
    columns = ("without", "loss", "worth", "(se)", "NLL", "in 1 sd", "in 2 sd", "in 90 %")
    title = "What each part of the signal model is worth, cross-validated on calibration"
    screen.show(table(title, columns, rows))
