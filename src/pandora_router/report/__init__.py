"""What people see of results: sentences, tables, verdicts, figures, Markdown, HTML.

    summary    one sentence and one small table: accuracy and money
    paired     differences averaged over costs, choices made on other splits
    verdicts   the router against every static way to route
    tables     Markdown tables
    markdown   the page about some experiments
    page       the same as one HTML file with curves to explore
    plots      figures (matplotlib only here)
    picture    one decision drawn from its row

This module imports nothing; take what you need from the one that has it.
"""
