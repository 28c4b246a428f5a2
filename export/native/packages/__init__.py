"""Lay out generated C as a library of Arduino, PlatformIO, Zephyr, ESP-IDF or CMake."""
