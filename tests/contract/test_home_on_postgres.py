"""A few tests of a whole home on Postgres, with every run of the tests; CONTRIBUTING.md says how to run the others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = (
    "flow/test_forget_everywhere.py::test_one_command_takes_the_floor_along",
    "flow/test_http.py::test_credential_sets_owner_and_machine",
    "flow/test_leaving.py::test_erased_user_leaves_no_trace",
    "flow/test_leaving.py::test_export_is_an_independent_home",
    "flow/test_search.py::test_search_without_an_index_scans_the_archive_and_says_so",
    "flow/test_sharing_cli.py::test_unknown_ids_and_addresses_give_advice",
    "flow/test_long_names.py",
    "flow/test_users.py::test_new_turns_are_embedded_for_users_with_vectors",
    "flow/test_visibility.py::test_counts_of_words_and_names_reveal_nothing_private",
    "flow/web/test_care.py::test_a_project_is_shared_counted_and_shared_no_more",
    "flow/web/test_care.py::test_only_the_grantee_can_decline_a_grant",
    "flow/web/test_care.py::test_other_user_sees_health_and_their_own_numbers",
    "flow/web/test_chat.py::test_what_was_remembered_stands_beside_the_answer",
)


@pytest.mark.slow
def test_homes_forget_share_and_serve_on_postgres():
    program = [sys.executable, "-m", "pytest", "-p", "rig.on_postgres", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [*program, *(f"tests/{name}" for name in TESTS)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
