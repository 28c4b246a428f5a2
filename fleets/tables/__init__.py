"""Read lakes of Parquet files by batches, in flat memory."""
