"""Which tenant on which GPU: arrays and problems of single GPUs in, sets of tenants with a bound out.

What a set is worth, and in how many processes that is found out, is the caller's: a callable. Work is counted, so that
the same fleet has the same answer on every machine.
"""
