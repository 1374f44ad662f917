"""One module per paper: its tables measured with kasuri, beside the printed ones."""
