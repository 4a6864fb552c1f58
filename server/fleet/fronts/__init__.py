"""Several processes that serve HTTP for one fleet: fronts, and what the fleet's process knows of them."""
