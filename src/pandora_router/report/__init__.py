"""Presentation of results: sentences, tables, verdicts, figures, Markdown, HTML.

    summary    a sentence, a small table and a Markdown page: accuracy and money
    paired     the router compared with every static way to route, prompt by prompt, and the verdict
    tables     Markdown tables
    html       the page as one HTML file with interactive curves
    plots      figures (the only module with matplotlib)

This module imports nothing; import from the modules above.
"""
