"""Presentation of results: sentences, tables, verdicts, figures, Markdown, HTML.

    summary    one sentence and one small table: accuracy and money
    paired     differences averaged over costs; choices made on other splits
    verdicts   the router compared with every static way to route
    tables     Markdown tables
    markdown   the page on some experiments
    html       the same as one HTML file with interactive curves
    plots      figures (the only module with matplotlib)

This module imports nothing; import from the modules above.
"""
