"""Pages over the store, rendered on the server: `/dashboard` of `pandora serve`.

    app          one ASGI callable: paths, who may see them, security headers, errors
    login        a signed cookie for holders of an admin key
    asked        what a request asks for: page, window of time, filters; links that keep them
    markup       HTML elements; text is escaped unless it is markup already
    layout       the frame of a page, tables that are also CSV files, tiles, charts
    today, decisions, decision, specialists, looks, calibration, keys, reconcile     one page each
    assets/      style and script of the pages; htmx and uPlot with their licences

Pages read roll-ups and indexed columns through a connection of their own (`store.reader`). Nothing is
inline: the content-security policy allows scripts and styles from this server only.
"""
