"""Tables, plots and pages made from results. This module imports nothing."""
