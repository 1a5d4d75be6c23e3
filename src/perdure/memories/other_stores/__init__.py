"""Read the memory stores of other products, and write memories in the forms that they read.

A module for each product turns its files into records; `records` has what these modules share, `plan` decides what
becomes a memory, `take_in` stores it, `export` writes files for other products. A store that is read is never changed.
"""
