"""Show a running loop on a page in the browser, beside the loop and without slowing it."""
