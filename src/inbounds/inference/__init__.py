"""What does the user want to know, and how well? A start, a metric, a gradient, steps and a stop, chosen and certified."""
