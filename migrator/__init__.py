"""The loop that observes, forecasts, plans, applies and reports; its log; and the command line."""

__version__ = "0.1.0.dev0"
