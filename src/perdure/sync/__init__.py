"""Two homes of one owner exchange their archives: what either lacks moves over a pair of streams."""
