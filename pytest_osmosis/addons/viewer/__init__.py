"""The report in one HTML file, and the dashboard, with one front end for both."""
