"""The market over a network: specialists are services that bid, and a platform holds the auctions.

    wire         the messages as JSON: offers, replies, reveals, deliveries
    signing      signed requests and replies; replays are refused
    service      a bidder as an HTTP service: inspects if that pays, replies, delivers
    card         the A2A agent card that a bidder service serves
    private      the private side of a bidder: a table, or a router with its specialist
    seats        the platform's side of a bidder: a service (/offers) or a plain endpoint (by proxy)
    rules        mechanism, reserve and deadlines
    platform     one prompt from the calls to the answer: rounds, award, delivery, runner-up, ledger
    losing       notices to bidders that lost, so that they cancel what they began
    floor        reads the bidders from the store and opens auctions among them
    recorder     the platform's steps in the ledger of the store
    beliefs      the platform's own estimates for a prompt
    reputation   the handicap of a bidder whose claims exceed its rewards
    auction_picture  one auction as an SVG
    app          the platform as an HTTP service
    network      simulated markets: bidder services on loopback, built from a routing table
    chaos        kills, delays and disconnects these services while auctions are held
    attacks      bidders that break the rules, to measure what that costs them and the platform
    contract     checks that every bidder service must pass, in any language

The rules of the auctions are in `market`; nothing here decides who wins.
"""
