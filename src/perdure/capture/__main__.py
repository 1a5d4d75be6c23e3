"""The hook as a file that Python runs by its path, without `site` and whatever a start-up file there does.

`python -IS …/perdure/capture/__main__.py claude-code`: half the start-up time, and no environment variable, no folder
of the user's and no broken package can stand in the way.
"""

import gc
import os
import sys

gc.disable()  # nothing lives long enough here to be worth looking for
sys.path.insert(0, __file__.rsplit("/", 3)[0])

try:
    from perdure.capture.hook import main

    main()
finally:
    os._exit(0)  # even an installation that is half there does not hold up a client
