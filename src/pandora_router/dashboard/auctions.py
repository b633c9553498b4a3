"""Market: who bids and how it stands, where the money is, the newest auctions; one auction as a picture.

The picture has the clock above, a row per bidder below, calls from left to right. Its colours are readable
on light and on dark paper, and every meaning has a shape as well: a filled dot is a bid, an empty one waits,
a cross leaves, a triangle is a reply that does not count, a ring around it says that the bidder looked before
it replied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from pandora_router.bidding.rules import Reputation
from pandora_router.dashboard.layout import (
    Entry,
    Page,
    PageTable,
    count,
    cut,
    joined,
    note,
    number,
    seconds,
    tile,
    tiles,
    when,
)
from pandora_router.dashboard.markup import Html, tag
from pandora_router.dashboard.page_request import PageRequest
from pandora_router.store import auctions
from pandora_router.store.auctions import AskedRow, AuctionRow
from pandora_router.store.database import Transaction

ROWS = 50
IN_A_FILE = 10_000
BIDDERS = ("bidder", "state", "since", "deposit", "earned", "graded wins", "largest handicap")
SCORES = ("bidder", "kind of prompt", "graded wins", "claim − reward", "handicap")
AUCTIONS = ("time", "auction", "mechanism", "kind", "answered by", "status", "price", "claim", "reward")
CALLS = ("bidder", "reply", "fault", "call", "price shown", "amount", "looks so far", "spent", "waited")


def market(open_: Transaction, request: PageRequest, reputation: Reputation) -> Page:
    """The page; handicaps are computed by the rule of the market that is served."""
    file = bool(request.query.get("csv"))
    window = request.window
    listed = auctions.newest(
        open_, window.since, window.until, IN_A_FILE if file else ROWS + 1, request.before
    )
    members = auctions.bidders(open_, everybody=True)
    scores = auctions.scores(open_)
    balances = auctions.balances(open_)
    deposits = sum(amount for account, amount in balances.items() if account.startswith("deposit "))
    present = sum(member.left_at is None for member in members)
    parts: list[Html | PageTable] = [
        tiles(
            tile("Bidders", f"{present:,}", f"{len(members) - present:,} have left"),
            tile("Platform has earned", number(balances.get("platform", 0.0)).shown, "prices and forfeits"),
            tile("Deposits", number(deposits).shown, "in units of reward"),
            tile("All balances", number(sum(balances.values())).shown, "sum to zero"),
        ),
        _bidders(members, scores, balances, reputation),
        _scores(scores, reputation),
        _auctions(listed if file else listed[:ROWS], request),
        _pager(listed, request),
        _accounts(balances),
        note(
            "Amounts are in units of reward. Let a bidder join with ",
            tag("code", "pandora market join NAME --url URL"),
            ".",
        ),
    ]
    return Page("Market", parts)


def _bidders(
    members: list[auctions.Membership],
    scores: list[auctions.Score],
    balances: dict[str, float],
    reputation: Reputation,
) -> PageTable:
    rows = []
    for member in members:
        own = [score for score in scores if score.bidder == member.name]
        handicap = max((reputation.handicap(score) for score in own), default=reputation.newcomer)
        state = "takes part" if member.left_at is None else "has left"
        rows.append(
            [
                Entry(member.name, cut(member.name)),
                Entry(state),
                when(member.joined_at),
                number(balances.get(f"deposit {member.name}", 0.0)),
                number(balances.get(f"bidder {member.name}", 0.0)),
                count(sum(score.graded for score in own)),
                number(handicap),
            ]
        )
    return PageTable("bidders", "Bidders", BIDDERS, rows, words=3, empty="Nobody has joined.")


def _scores(scores: list[auctions.Score], reputation: Reputation) -> PageTable:
    rows = [
        [
            Entry(score.bidder, cut(score.bidder)),
            Entry(score.kind or "(not stated)", cut(score.kind or "(not stated)")),
            count(score.graded),
            number(score.total / score.graded),
            number(reputation.handicap(score)),
        ]
        for score in scores
        if score.graded
    ]
    title = "Reputation: claims against what came of them"
    return PageTable("reputation", title, SCORES, rows, words=2, empty="Nothing was graded yet.")


def _auctions(listed: list[auctions.AuctionRow], request: PageRequest) -> PageTable:
    rows = [
        [
            when(row.at),
            Entry(row.id, tag("a", f"…{row.id[-8:]}", href=request.link(f"market/{row.id}"), title=row.id)),
            Entry(row.mechanism),
            Entry(row.kind, cut(row.kind, 20)),
            Entry(row.bidder or "the default", cut(row.bidder or "the default", 30)),
            Entry(row.status, tag("span", row.status, class_=None if row.status == "delivered" else "bad")),
            number(row.price),
            number(row.claim),
            number(row.reward),
        ]
        for row in listed
    ]
    empty = "No auction in this window."
    return PageTable("auctions", "Auctions, newest first", AUCTIONS, rows, words=6, empty=empty)


def _pager(listed: list[auctions.AuctionRow], request: PageRequest) -> Html:
    newest = tag("a", "Newest", href=request.link()) if request.before else None
    older = None
    if len(listed) > ROWS:
        last = listed[ROWS - 1]
        older = tag("a", "Older", href=request.link(before=f"{last.at!r}_{last.id}"), rel="next", id="older")
    return tag("div", joined(newest, older), class_="pager")


def _accounts(balances: dict[str, float]) -> PageTable:
    rows = [[Entry(account, cut(account)), number(amount, 6)] for account, amount in balances.items()]
    return PageTable(
        "accounts", "Accounts", ("account", "balance"), rows, folded=True, empty="No money moved."
    )


def auction(open_: Transaction, request: PageRequest, id_: str) -> Page | None:
    """One auction; None if there is none of this id."""
    stored = auctions.auction(open_, id_)
    if stored is None:
        return None
    row, calls = stored
    facts = {
        "Auction": row.id,
        "Time": when(row.at).child,
        "Answered by": tag("strong", row.bidder or "the default"),
        "Status": row.status,
        "Mechanism": row.mechanism,
        "Kind of prompt": row.kind or None,
        "Price": number(row.price).shown,
        "Claim of the winner": None if row.claim is None else number(row.claim).shown,
        "Reward": None if row.reward is None else number(row.reward).shown,
        "Winners that did not deliver": str(row.turn) if row.turn else None,
    }
    shown = [(tag("dt", name), tag("dd", value)) for name, value in facts.items() if value]
    lines = [
        [
            Entry(call.bidder, cut(call.bidder)),
            Entry(call.said),
            Entry(call.fault or "", tag("span", call.fault, class_="bad") if call.fault else ""),
            count(call.turn + 1),
            number(call.price),
            number(call.amount),
            count(call.looks),
            number(call.spent),
            seconds(call.seconds),
        ]
        for call in calls
    ]
    money = [
        [Entry(what), Entry(debit), Entry(credit), number(amount, 6)]
        for what, debit, credit, amount in auctions.entries(open_, id_)
    ]
    parts: list[Html | PageTable] = [
        tag("dl", shown, class_="facts"),
        tag("div", Html(auction_picture(row, calls)), class_="picture", tabindex="0"),
        PageTable("calls", "Calls in order", CALLS, lines, words=3, empty="Nobody was called."),
        PageTable("money", "Money", ("purpose", "from", "to", "amount"), money, words=3, empty="None moved."),
        note(tag("a", "The request that it was held for", href=request.link(f"decisions/{row.id}")), "."),
    ]
    return Page("One auction", parts, ranged=False)


ROW, LEFT, STEP, CLOCK, LEAST = 28, 150, 30, 96, 520
BID, QUIET, FAULT, LOOK, LINE = "#2563eb", "#8b93a1", "#dc2626", "#d97706", "#8b93a1"
LEGEND = (("bid", "bids"), ("wait", "waits"), ("leave", "leaves"), ("fault", "does not count"))


def auction_picture(auction: AuctionRow, asked: Sequence[AskedRow]) -> str:
    """An SVG of the calls of an auction in order; hovering tells the price, the reply and any fault.

    Texts are names, prices and kinds of faults; nothing a bidder wrote is shown.
    """
    names = list(dict.fromkeys(call.bidder for call in asked))
    if auction.bidder is not None and auction.bidder not in names:
        names.append(auction.bidder)
    height = CLOCK + ROW * (len(names) + 2)
    width = max(LEAST, LEFT + STEP * (len(asked) + 2))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" font-family="sans-serif" font-size="13" fill="currentColor">'
        f"<title>{escape(_summary(auction))}</title>"
    ]
    parts += [_name(name, _y(place), width, auction.bidder) for place, name in enumerate(names)]
    parts.append(_clock(auction, asked, width))
    looks: dict[str, int] = {}
    for at, call in enumerate(asked):
        looked = call.looks > looks.get(call.bidder, 0)
        looks[call.bidder] = max(call.looks, looks.get(call.bidder, 0))
        parts.append(_call(call, _x(at), _y(names.index(call.bidder)), looked))
    parts.append(_legend(height - ROW))
    parts.append(f'<text x="8" y="{height - 8}">{escape(_summary(auction))}</text></svg>')
    return "".join(parts)


def _x(at: int) -> int:
    return LEFT + STEP * (at + 1)


def _y(place: int) -> int:
    return CLOCK + ROW * place + ROW // 2


def _summary(auction: AuctionRow) -> str:
    who = auction.bidder or "the default"
    reward = "" if auction.reward is None else f", reward {auction.reward:.3f}"
    return f"{auction.mechanism}: {who} at {auction.price:.3f}, {auction.status}{reward}"


def _name(name: str, y: int, width: int, winner: str | None) -> str:
    won = name == winner
    weight = ' font-weight="bold"' if won else ""
    line = f'<path d="M{LEFT} {y}H{width - 8}" stroke="{LINE}" stroke-opacity=".35"/>'
    return f'{line}<text x="8" y="{y + 4}"{weight}>{escape(name[:16])}{" ★" if won else ""}</text>'


def _clock(auction: AuctionRow, asked: Sequence[AskedRow], width: int) -> str:
    """The prices that were shown, as steps, and the price that was paid; nothing if no price was shown."""
    shown = [(at, call.price) for at, call in enumerate(asked) if call.price is not None]
    values = [price for _, price in shown] + [auction.price]
    low, high = min(values), max(values)
    span = high - low if high > low else 1.0

    def y(price: float) -> float:
        return round(CLOCK - 22 - (CLOCK - 44) * (price - low) / span, 1)

    path = "".join(f"{'M' if i == 0 else 'L'}{_x(at)} {y(price)}" for i, (at, price) in enumerate(shown))
    paid = y(auction.price)
    marks = {low, high} if math.isfinite(span) else set()
    labels = "".join(
        f'<text x="{LEFT - 8}" y="{y(mark) + 4}" text-anchor="end">{mark:.3f}</text>' for mark in marks
    )
    return (
        f'<text x="8" y="{CLOCK // 2}">price</text>{labels}'
        f'<path d="M{LEFT} {paid}H{width - 8}" stroke="{BID}" stroke-dasharray="4 4"/>'
        + (f'<path d="{path}" fill="none" stroke="{LINE}" stroke-width="2"/>' if path else "")
    )


def _call(call: AskedRow, x: int, y: int, looked: bool) -> str:
    price = "no price yet" if call.price is None else f"price {call.price:.3f}"
    amount = "" if call.amount is None else f" {call.amount:.3f}"
    reply = f"{call.bidder}: {price}, {call.said}{amount}" + (f" ({call.fault})" if call.fault else "")
    ring = (
        f'<circle cx="{x}" cy="{y}" r="10" fill="none" stroke="{LOOK}" stroke-width="2"/>' if looked else ""
    )
    return f"<g><title>{escape(reply)}</title>{ring}{_mark('fault' if call.fault else call.said, x, y)}</g>"


def _ring(x: int, y: int) -> str:
    return f'<circle cx="{x}" cy="{y}" r="10" fill="none" stroke="{LOOK}" stroke-width="2"/>'


def _mark(kind: str, x: int, y: int) -> str:
    if kind == "bid":
        return f'<circle cx="{x}" cy="{y}" r="6" fill="{BID}"/>'
    if kind == "wait":
        return f'<circle cx="{x}" cy="{y}" r="5" fill="none" stroke="{QUIET}" stroke-width="2"/>'
    if kind == "fault":
        return f'<path d="M{x} {y - 6}L{x + 6} {y + 5}H{x - 6}Z" fill="{FAULT}"/>'
    return f'<path d="M{x - 4} {y - 4}l8 8m0 -8l-8 8" stroke="{QUIET}" stroke-width="2" fill="none"/>'


def _legend(y: int) -> str:
    parts, x = [], 16
    for kind, words in LEGEND:
        parts.append(f'{_mark(kind, x, y - 4)}<text x="{x + 12}" y="{y}">{words}</text>')
        x += 40 + 8 * len(words)
    return "".join(parts) + f'{_ring(x, y - 4)}<text x="{x + 16}" y="{y}">looked first</text>'
