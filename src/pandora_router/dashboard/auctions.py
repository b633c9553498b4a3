"""Market: who bids and how it stands, where the money is, the newest auctions; one auction as a picture."""

from __future__ import annotations

from pandora_router.bidding.auction_picture import auction_picture
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
