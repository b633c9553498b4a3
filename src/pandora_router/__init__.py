"""pandora-router: which estimates are worth buying, and which specialist should answer."""
