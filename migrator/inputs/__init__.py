"""What a run is about, made of its config: tenants, traffic, estimates; and what of it was assumed."""
