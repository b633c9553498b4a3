"""The market over a network: specialists are services that bid, and a platform holds the auctions.

    wire             the messages as JSON: offers, replies, deliveries, notices; signatures
    service          a bidder: what it keeps to itself; an HTTP service that inspects, replies, delivers
    participants     the platform's side of a bidder: a service (/offers) or a plain endpoint (by proxy)
    rules            mechanism, reserve and deadlines; the platform's own estimates for a prompt
    platform         one prompt from the calls to the answer: rounds, award, delivery, runner-up
    auctioneer       reads the bidders from the store, opens auctions among them, records every step
    platform_http    the platform as an HTTP service
    contract         checks that every bidder service must pass, in any language

The rules of the auctions are in `market`; nothing here decides who wins. Simulated markets, faults and
attacks are in `benchmarks/bidding*.py`.
"""
