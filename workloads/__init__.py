"""Tenants, their traffic, their service profiles, and the simulation of requests against servers."""
