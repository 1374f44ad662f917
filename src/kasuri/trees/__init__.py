"""Public trees over cells and what is written on them; nothing here sees data or noise."""
