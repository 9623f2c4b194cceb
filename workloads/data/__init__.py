"""Shipped traces, service profiles and start-up times; README.md says where each comes from."""
