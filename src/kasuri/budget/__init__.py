"""What is spent: prices of releases and series, and the ledger that keeps them."""
