"""The picture of an auction shows every call, who looked and who won; no text in it is markup."""

from __future__ import annotations

from xml.etree import ElementTree

from pandora_router.dashboard.auctions import auction_picture
from pandora_router.store.auctions import AskedRow, AuctionRow

SVG = "{http://www.w3.org/2000/svg}"


def test_every_call_is_a_dot_and_every_look_a_ring():
    auction = AuctionRow("a", 1.0, "descending", "", "delivered", 0, "<b>x</b>", 0.4, 0.5, 0.7)
    asked = [
        AskedRow("<b>x</b>", 0, None, "wait", 0.8, 0, 0.0, 0.01, None),
        AskedRow("y", 0, None, "leave", None, 0, 0.0, 0.01, "late"),
        AskedRow("<b>x</b>", 1, 0.8, "bid", 0.5, 1, 0.02, 0.01, None),
    ]
    root = ElementTree.fromstring(auction_picture(auction, asked))
    groups = root.findall(f"{SVG}g")
    assert [len(group.findall(f"{SVG}circle")) for group in groups] == [1, 0, 2]  # leaving is a triangle
    assert "late" in groups[1].find(f"{SVG}title").text
    texts = [text.text for text in root.findall(f"{SVG}text")]
    assert texts[0] == "<b>x</b> ★"
    assert {"0.400", "0.800"} <= set(texts)  # the clock from what was shown to what is paid
    assert texts[-1] == "descending: <b>x</b> at 0.400, delivered, reward 0.700"


def test_a_winner_that_was_never_asked_has_a_row():
    auction = AuctionRow("a", 1.0, "sequential", "", "delivered", 0, "held", 0.4, None, None)
    assert "held" in auction_picture(auction, [])
