"""Serve sensors in a browser: tables read by JavaScript, the model as WebAssembly, one page."""
