"""One auction as a picture: the clock above, a row per bidder below, calls from left to right.

Colours are readable on light and on dark paper, and every meaning has a shape as well: a filled dot is a bid,
an empty one waits, a cross leaves, a triangle is a reply that does not count, a ring around it says that the
bidder looked before it replied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from pandora_router.store.auctions import AskedRow, AuctionRow

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
