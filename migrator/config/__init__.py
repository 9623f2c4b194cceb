"""What a run is asked to be: a YAML file, validated key by key."""
