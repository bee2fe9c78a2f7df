"""HTTP: the scrape, the health checks and the landing page, from bytes that are ready before anybody asks."""
