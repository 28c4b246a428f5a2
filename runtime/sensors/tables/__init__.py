"""Take tables of pandas, polars and Arrow, and return forecasts or scores as such tables."""
