"""Comparing: policies on the same requests, forecasters on the same arrivals."""
