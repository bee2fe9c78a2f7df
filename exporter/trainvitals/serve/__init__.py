"""HTTP: the scrape, the health checks and the page, from bytes that are ready before anybody asks."""
