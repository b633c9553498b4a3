"""The default costly estimate g: gradient-boosted trees over what is known of a prompt. No torch."""
