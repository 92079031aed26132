"""How Redis is spoken to: URLs, connections, scripts. Knows neither queues nor leaders, which both use it."""
