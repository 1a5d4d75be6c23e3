"""The web page: what the home holds, why recall spoke and how the home is doing, for people, in a browser.

It is served beside the API, from the same table of homes, and shows only what `Home` answers for the
user who visits. Everything works without JavaScript: links, forms that query, and forms that change
something and answer with a redirect.
"""
