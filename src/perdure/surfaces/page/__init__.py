"""The page: what the home holds, why it spoke and how it is doing, for people, in a browser.

Served beside the API, out of the same table of homes; it shows what `Home` answers for the user who visits and nothing
else. Everything works without JavaScript: links, forms that ask, forms that change and answer with another address.
"""
