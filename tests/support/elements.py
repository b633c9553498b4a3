"""The elements of an HTML page, as tests look at them."""

from __future__ import annotations

from html.parser import HTMLParser


class Elements(HTMLParser):
    """Every element of a page with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.all: list[tuple[str, dict[str, str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, {name: value or "" for name, value in attrs}))

    def of(self, tag: str, **wanted: str) -> list[dict[str, str]]:
        """The attributes of each element `tag` that has these among them."""
        return [a for t, a in self.all if t == tag and all(a.get(k) == v for k, v in wanted.items())]
