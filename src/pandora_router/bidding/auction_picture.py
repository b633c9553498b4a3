"""One auction as a picture: the clock from left to right, a row per bidder, looks, bids, and who won."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from pandora_router.store.auctions import AskedRow, AuctionRow

ROW, LEFT, WIDTH, STEP = 26, 130, 640, 16
COLOURS = {"bid": "#2563eb", "wait": "#9ca3af", "leave": "#d1d5db"}


def auction_picture(auction: AuctionRow, asked: Sequence[AskedRow]) -> str:
    """An SVG of the calls in order: a dot per call (blue: bid, grey: wait, pale: leave, red ring: fault).

    A ring around a dot says that the bidder looked before this answer; a star marks the winner. Texts are
    names, prices and kinds of faults; nothing a bidder wrote is shown.
    """
    names = list(dict.fromkeys(row.bidder for row in asked))
    if auction.bidder is not None and auction.bidder not in names:
        names.append(auction.bidder)
    height = ROW * (len(names) + 2)
    width = max(WIDTH, LEFT + STEP * (len(asked) + 8))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img" '
        f'font-family="sans-serif" font-size="12"><title>{escape(_summary(auction))}</title>'
    ]
    parts += [_name(name, place, auction.bidder) for place, name in enumerate(names)]
    looks: dict[str, int] = {}
    for at, row in enumerate(asked):
        looked = row.looks > looks.get(row.bidder, 0)
        looks[row.bidder] = max(row.looks, looks.get(row.bidder, 0))
        parts.append(_dot(row, LEFT + STEP * (at + 1), ROW * (names.index(row.bidder) + 1), looked))
    parts.append(f'<text x="8" y="{height - 10}">{escape(_summary(auction))}</text></svg>')
    return "".join(parts)


def _summary(auction: AuctionRow) -> str:
    who = auction.bidder or "the default"
    reward = "" if auction.reward is None else f", reward {auction.reward:.3f}"
    return f"{auction.mechanism}: {who} at {auction.price:.3f}, {auction.status}{reward}"


def _name(name: str, place: int, winner: str | None) -> str:
    star = " ★" if name == winner else ""
    return f'<text x="8" y="{ROW * (place + 1) + 4}">{escape(name[:16])}{star}</text>'


def _dot(row: AskedRow, x: int, y: int, looked: bool) -> str:
    price = "no price yet" if row.price is None else f"price {row.price:.3f}"
    amount = "" if row.amount is None else f" {row.amount:.3f}"
    title = f"{row.bidder}: {price}, {row.said}{amount}" + (f" ({row.fault})" if row.fault else "")
    stroke = ' stroke="#dc2626" stroke-width="2"' if row.fault else ""
    ring = (
        f'<circle cx="{x}" cy="{y}" r="8" fill="none" stroke="#f59e0b" stroke-width="2"/>' if looked else ""
    )
    dot = f'<circle cx="{x}" cy="{y}" r="5" fill="{COLOURS[row.said]}"{stroke}/>'
    return f"<g><title>{escape(title)}</title>{ring}{dot}</g>"
