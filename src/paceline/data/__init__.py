"""The packaged tables, and the one module that reads them."""
