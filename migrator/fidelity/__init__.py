"""How near what was foretold comes to what then happened: plans to the simulation, the simulation to live runs."""
