"""The former home of ``planner.policies``; kept for one version, for policies in users' own files."""
