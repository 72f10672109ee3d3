"""One rank or many: communicators, placement of agents, exchanges."""
