"""The command `pandora`: one file per verb."""
