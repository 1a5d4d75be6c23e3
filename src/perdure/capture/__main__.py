"""The hook as a file that Python runs by its path, without `site` and its start-up files.

`python -IS …/perdure/capture/__main__.py claude-code` starts in half the time. No environment variable,
no folder of the user and no broken package can get in its way.
"""

import gc
import os
import sys

gc.disable()  # the process ends before a collection could pay
sys.path.append(__file__.rsplit("/", 3)[0])

try:
    from perdure.capture.launch import launch

    payload, began_at, is_late = launch(sys.argv[1:])  # returns only where the resident home does not answer
    from perdure.capture import hook

    if is_late:
        hook.report_late(sys.argv[1:], payload)
    hook.main(sys.argv[1:], payload=payload, began_at=began_at)
finally:
    os._exit(0)  # a broken installation must not block a client either
