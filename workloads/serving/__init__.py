"""The request simulation: queues, servers, dispatch rules and tallies."""
