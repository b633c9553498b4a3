"""The default costly estimate g: gradient-boosted trees over features and simpler predictions. No torch."""
