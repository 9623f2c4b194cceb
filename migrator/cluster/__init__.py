"""Many GPUs: what each set of tenants is worth on each model, and who goes where."""
