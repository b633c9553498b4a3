"""The dashboard: pages on the store's data, rendered on the server; `/dashboard` of `pandora serve`.

    site          the ASGI application: paths, access, security headers, errors
    page_request  a parsed request: page, time window, filters, links that keep them; who may ask
    markup        HTML elements; text is escaped unless it is already markup
    layout        the frame of a page, tables (also as CSV), tiles, charts
    net_value     net value of the router and of other ways to route
    today, decisions, decision, specialists, looks, calibration, keys, reconcile, auctions  one page each
    learnt        the page Learning

The folder `assets` has style and script of the pages, and htmx and uPlot with their licences.
Pages read roll-ups and indexed columns through a separate connection (`store.reader`). Scripts and styles are
never inline: the content security policy allows only files from this server.
"""
