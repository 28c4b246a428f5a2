"""Serve models in a browser or in node: tables read by JavaScript, C as WebAssembly, one page.

tables/    read tables as `edgefold forecast` does
engine/    the engine of sensors, and its functions in C
page/      the page that forecasts a table
package/   what the package of npm of the sensors has besides
model/     the package of any other model
"""
