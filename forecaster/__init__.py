"""From past arrival rates to a Forecast of the next steps: mean, quantiles and sample paths."""
