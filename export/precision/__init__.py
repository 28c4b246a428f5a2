"""Narrow the element types of a bundle's graphs to float16 or int8, and measure what that costs."""
