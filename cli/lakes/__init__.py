"""Forecast the sensors of a lake of Parquet files from the command line."""
