"""The dashboard: pages on the store's data, rendered on the server; `/dashboard` of `pandora serve`.

    app          the ASGI application: paths, access, security headers, errors
    login        a signed cookie for holders of an admin key
    page_request a parsed request: page, time window, filters; links that keep them
    markup       HTML elements; text is escaped unless it is already markup
    layout       the frame of a page, tables (also as CSV), tiles, charts
    today, decisions, decision, specialists, looks, calibration, keys, reconcile     one page each
    assets/      style and script of the pages; htmx and uPlot with their licences

Pages read roll-ups and indexed columns through a separate connection (`store.reader`). Scripts and styles are
never inline: the content security policy allows only files from this server.
"""
