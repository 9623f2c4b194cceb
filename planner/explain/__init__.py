"""Why a plan's layout in a step is what it is."""
