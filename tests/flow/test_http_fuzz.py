"""The API against whatever a program can think of: no answer is a 500, and each is what the document says of it.

The requests are made by schemathesis from the server's own OpenAPI document, valid and invalid ones.
"""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,ignored_auth"
N_EXAMPLES = 6  # of each operation; a run by hand takes more


@pytest.mark.timeout(900)
def test_fuzzed_requests_cause_no_fault_and_match_the_schema(served, tmp_path, message):
    assert SCHEMATHESIS.exists(), "schemathesis is one of the tools of the tests"
    home = served("[server]\nrequests_per_minute = 1000000")
    home.served.api.wrong_secret_rates.per_minute = 1_000_000  # it asks without a credential, too
    home.ada_laptop("POST", "/api/runs?runtime=messages&session=s1", message("user", "The port is 8443.", 0))
    words = [
        str(SCHEMATHESIS), "run", f"{home.address}/api/openapi.json", "-H", "Authorization: Bearer ada-laptop",
        "-c", CHECKS, "-n", str(N_EXAMPLES), "--seed", "1", "--phases", "examples,coverage,fuzzing",
        "--suppress-health-check", "all", "--warnings", "off", "--request-timeout", "30",
    ]  # fmt: skip
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
