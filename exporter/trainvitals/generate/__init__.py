"""What is generated from the catalogue of metrics: rules, dashboards, the mail template and two pages of the docs."""
