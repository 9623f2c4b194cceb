"""Models that really learn: benchmarks as sequences of experiences, a catalogue of models, trainers, micro-profiling.

Nothing here imports torch, scikit-learn or Avalanche before it is asked to make something with them.
"""
