"""Commands that print the numbers the documents quote."""
