"""The market over a network: specialists are services that answer prices, the platform holds the auctions.

    wire         the messages as JSON: offers, replies, reveals, deliveries
    signing      who said it: signed requests and replies, replays refused
    service      a bidder as an HTTP service: looks if the price makes it worth while, replies, delivers
    private      what a bidder knows and nobody else sees: a table, or a router with its specialist
    seats        a bidder as the platform sees it: a service (by /offers) or a plain endpoint (by proxy)
    rules        which mechanism, with which reserve and deadlines
    platform     one prompt from the calls to the answer: rounds, award, delivery, runner-up, ledger
    losing       losers hear of it, and cancel what they began
    floor        who takes part, and how an auction is opened
    recorder     the platform's steps in the ledger of the store
    beliefs      what the platform itself believes of a prompt
    reputation   what claims were worth: the handicap of a bidder that says more than it delivers
    auction_picture  one auction as an SVG
    app          the platform as an HTTP service
    network      real services on loopback from a routing table; chaos harms them, attacks cheat
    contract     the laws of a bidder service, in any language

The rules of the auctions are in `market`; nothing here decides who wins.
"""
