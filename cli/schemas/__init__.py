"""JSON Schemas of the records that Edgefold writes; docs/records.md is written from them."""
