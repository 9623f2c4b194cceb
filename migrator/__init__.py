"""The loop that observes, forecasts, plans, applies and reports; its log; and the command line."""
